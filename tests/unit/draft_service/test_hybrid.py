"""The hybrid as an engine: who answers, and what the model is told when it was not asked for a while."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draft_service.proposers.hybrid import HybridProposer
from pilotfish.engine.process.event_queue import EventQueue
from pilotfish.errors import UnavailableError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
)
from pilotfish.speculation.lookup.suffix import SuffixIndex
from pilotfish.types import (
    AcceptanceMode,
    Limits,
    LoadReport,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    TreeRequest,
)

GREEDY = SamplingParams(temperature=0)
MODEL_TOKEN = 99


class FakeModel:
    """An engine that proposes MODEL_TOKEN and keeps the tokens that it is told, as the real one does."""

    model = ModelInfo(
        model_id="m", tokenizer_fingerprint="f", vocab_size=100, max_context_tokens=1000, proposer="model"
    )
    limits = Limits(max_draft_tokens=8, max_sequences=4)
    load = LoadReport(num_sequences_running=7)

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}
        self.requests: list[Propose] = []
        self.is_closed = False
        self.queue = EventQueue()

    def send(self, commands: Sequence[Command]) -> None:
        self.queue.raise_if_failed()
        for command in commands:
            match command:
                case OpenSequence():
                    self.tokens[command.sequence_id] = [*command.prompt_token_ids, *command.output_token_ids]
                    self.queue.put([Opened(command.sequence_id, 0)])
                case CloseSequence():
                    self.tokens.pop(command.sequence_id, None)
                case Propose():
                    tokens = self.tokens[command.sequence_id]
                    start = command.base_length - len(command.new_token_ids)
                    assert start <= len(tokens), "tokens are missing"
                    tokens[start:] = command.new_token_ids
                    self.requests.append(command)
                    draft = (MODEL_TOKEN,) * command.num_draft_tokens
                    probs = (SparseDistribution((MODEL_TOKEN,), (1.0,)),) * command.num_draft_tokens
                    self.queue.put([Proposal(command.sequence_id, command.base_length, draft, probs)])
                case _:
                    raise AssertionError(command)

    @property
    def num_proposals(self) -> int:
        return len(self.requests)

    async def receive(self) -> Sequence[Event]:
        return await self.queue.receive()

    async def close(self) -> None:
        self.is_closed = True


def hybrid(model: FakeModel, min_accepted_tokens: float = 1.0) -> HybridProposer:
    return HybridProposer(model, lambda: SuffixIndex(min_probability=0.05), min_accepted_tokens=min_accepted_tokens)


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
async def proposer(model: FakeModel) -> AsyncIterator[HybridProposer]:
    proposer = hybrid(model)
    yield proposer
    await proposer.close()


async def next_proposal(proposer: HybridProposer) -> Proposal:
    while True:
        for event in await proposer.receive():
            if isinstance(event, Proposal):
                return event
            assert isinstance(event, Opened)


async def propose(proposer: HybridProposer, base_length: int, new_token_ids: Sequence[int] = ()) -> Proposal:
    proposer.send([Propose(1, base_length, tuple(new_token_ids), 4)])
    proposal = await next_proposal(proposer)
    assert proposal.base_length == base_length
    return proposal


COPIED = tuple(range(10, 20))


async def test_a_confident_lookup_answers_and_the_model_is_told_nothing(
    proposer: HybridProposer, model: FakeModel
) -> None:
    proposer.send([OpenSequence(1, (*COPIED, 1, 10, 11, 12, 13), GREEDY)])
    assert (await propose(proposer, 15)).draft_token_ids == (14, 15, 16, 17)
    assert model.num_proposals == 0
    assert model.tokens[1] == [*COPIED, 1, 10, 11, 12, 13]


async def test_a_lookup_that_is_not_confident_joins_the_models_tree(model: FakeModel) -> None:
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION)
    proposer = hybrid(model, min_accepted_tokens=3.0)
    proposer.send([OpenSequence(1, (*COPIED, 1, 10, 11), sampling)])
    proposer.send([Propose(1, 13, (), 2, tree=TreeRequest(max_nodes=4, branching=2))])
    proposal = await next_proposal(proposer)
    # Room for one of four nodes is kept; the model used two of the other three.
    assert model.requests[-1].tree == TreeRequest(max_nodes=3, branching=2)
    assert proposal.draft_token_ids == (MODEL_TOKEN, MODEL_TOKEN, 12, 13)
    assert proposal.parents == (-1, 0, -1, 2)
    assert proposal.draft_probs[-1] == SparseDistribution((13,), (1.0,))
    # The next answer has nothing to do with it.
    proposer.send([Propose(1, 14, (50,), 2, tree=TreeRequest(max_nodes=4, branching=2))])
    assert (await next_proposal(proposer)).parents == ()
    await proposer.close()


async def test_missing_tokens_and_a_targets_work_are_refused(proposer: HybridProposer, model: FakeModel) -> None:
    proposer.send([OpenSequence(1, (1, 2, 3), GREEDY), Propose(1, 9, (1,), 2), Decode(1, 3, 1)])
    errors: list[SequenceError] = []
    while len(errors) < 2:
        errors += [event for event in await proposer.receive() if isinstance(event, SequenceError)]
    assert [error.code for error in errors] == [SequenceErrorCode.UNKNOWN_SEQUENCE, SequenceErrorCode.INVALID]
    assert model.num_proposals == 0


async def test_the_end_of_the_model_is_its_end(proposer: HybridProposer, model: FakeModel) -> None:
    model.queue.fail(UnavailableError("the model has died"))
    with pytest.raises(UnavailableError, match="has died"):
        await proposer.receive()
    with pytest.raises(UnavailableError, match="has died"):
        proposer.send([])


statements = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 2), min_size=1, max_size=6)), min_size=1, max_size=12
)


@given(statements)
def test_whenever_the_model_is_asked_it_knows_the_committed_tokens(statements: list[tuple[int, list[int]]]) -> None:
    async def check() -> None:
        model = FakeModel()
        proposer = hybrid(model)
        truth = [0, 1, 2, 0, 1]
        proposer.send([OpenSequence(1, tuple(truth), GREEDY)])
        for num_forgotten, new_token_ids in statements:
            start = max(1, len(truth) - num_forgotten)
            truth[start:] = new_token_ids
            num_proposals = model.num_proposals
            proposal = await propose(proposer, len(truth), new_token_ids)
            is_models = model.num_proposals > num_proposals
            assert is_models == (MODEL_TOKEN in proposal.draft_token_ids)
            if is_models:
                assert model.tokens[1] == truth
        await proposer.close()

    asyncio.run(check())
