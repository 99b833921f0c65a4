"""Lookups as an engine: rewinds, long prompts in slices, one-hot distributions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from draft_service.lookup_engine import TOKENS_PER_TURN, LookupEngine, start_lookup_engine
from pilotfish.config import Config, DraftConfig
from pilotfish.drafters.ngram.draft import NgramIndex
from pilotfish.errors import ModelNotFoundError, UnavailableError
from pilotfish.messages import CloseSequence, Event, Opened, OpenSequence, Proposal, Propose, SequenceError
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.types import Limits, ModelInfo, SamplingParams, SequenceErrorCode, TreeRequest

GREEDY = SamplingParams(temperature=0)


@pytest.fixture
async def proposer() -> AsyncIterator[LookupEngine]:
    model = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=100, max_context_tokens=100_000)
    limits = Limits(max_draft_tokens=8, max_sequences=4)
    proposer = LookupEngine(model, limits, lambda _: NgramIndex(2, 3))
    yield proposer
    await proposer.close()


async def events(proposer: LookupEngine, count: int) -> list[Event]:
    found: list[Event] = []
    while len(found) < count:
        found += await proposer.receive()
    return found


async def propose(proposer: LookupEngine, base_length: int, new_token_ids: Sequence[int] = (), k: int = 3) -> Proposal:
    proposer.send([Propose(1, base_length, tuple(new_token_ids), k)])
    (event,) = await events(proposer, 1)
    assert isinstance(event, Proposal)
    assert event.base_length == base_length
    return event


async def opened(proposer: LookupEngine, token_ids: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
    proposer.send([OpenSequence(1, tuple(token_ids), sampling)])
    assert await events(proposer, 1) == [Opened(1, 0)]


async def test_rewinds_by_statement(proposer: LookupEngine) -> None:
    await opened(proposer, (1, 2, 3, 1, 2))
    await propose(proposer, 7, (8, 8))
    assert (await propose(proposer, 6, (3,), k=2)).draft_token_ids == (1, 2)
    # Stated again, the same answer.
    assert (await propose(proposer, 6, (3,), k=2)).draft_token_ids == (1, 2)


async def test_missing_tokens_are_told(proposer: LookupEngine) -> None:
    await opened(proposer, (1, 2, 3))
    proposer.send([Propose(1, 6, (4,), 2), Propose(9, 3, (), 2)])
    first, second = await events(proposer, 2)
    for error, sequence_id, base_length in ((first, 1, 6), (second, 9, 3)):
        assert isinstance(error, SequenceError)
        assert (error.sequence_id, error.base_length) == (sequence_id, base_length)
        assert error.code is SequenceErrorCode.UNKNOWN_SEQUENCE


async def test_a_long_prompt_does_not_hold_up_another_sequence(proposer: LookupEngine) -> None:
    long = tuple(index % 90 for index in range(100 * TOKENS_PER_TURN))
    proposer.send([OpenSequence(2, long, GREEDY), Propose(2, len(long), (), 2)])
    proposer.send([OpenSequence(1, (1, 2, 3, 1, 2), GREEDY), Propose(1, 5, (), 2)])
    answered = [event.sequence_id for event in await events(proposer, 4) if isinstance(event, Proposal)]
    assert answered == [1, 2]


async def test_a_newer_request_replaces_one_that_waits(proposer: LookupEngine) -> None:
    long = (*range(50), *(51 for _ in range(4 * TOKENS_PER_TURN)), 1, 2)
    proposer.send([OpenSequence(1, long, GREEDY), Propose(1, len(long), (), 2), Propose(1, len(long) + 1, (3,), 2)])
    _, proposal = await events(proposer, 2)
    assert isinstance(proposal, Proposal)
    assert proposal.base_length == len(long) + 1
    assert proposal.draft_token_ids == (4, 5)


async def test_a_closed_sequence_is_forgotten_while_it_is_indexed(proposer: LookupEngine) -> None:
    proposer.send([OpenSequence(1, (7,) * 10 * TOKENS_PER_TURN, GREEDY), CloseSequence(1), CloseSequence(1)])
    await opened_after(proposer)
    assert proposer.load.num_sequences_running == 1


async def opened_after(proposer: LookupEngine) -> None:
    proposer.send([OpenSequence(2, (1, 2), GREEDY), Propose(2, 2, (), 1)])
    found = await events(proposer, 3)
    assert {event.sequence_id for event in found if isinstance(event, Proposal)} == {2}


async def test_no_draft_beyond_the_context(proposer: LookupEngine) -> None:
    model = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=100, max_context_tokens=6)
    small = LookupEngine(model, proposer.limits, lambda _: NgramIndex(2, 3))
    await opened(small, (1, 2, 3, 1, 2))
    assert (await propose(small, 5, k=4)).draft_token_ids == (3,)
    await small.close()


async def test_a_closed_proposer_says_so(proposer: LookupEngine) -> None:
    waiting = asyncio.create_task(proposer.receive())
    await proposer.close()
    with pytest.raises(UnavailableError, match="closed"):
        await waiting


async def test_suffix_branches_where_it_may(proposer: LookupEngine) -> None:
    subject = LookupEngine(proposer.model, proposer.limits, lookup_of("suffix")(DraftConfig()))
    await opened(subject, (1, 2, 3, 5, 1, 2, 4, 6, 1, 2))
    subject.send([Propose(1, 10, (), 2, tree=TreeRequest(max_nodes=4, branching=2))])
    (event,) = await events(subject, 1)
    assert isinstance(event, Proposal)
    assert event.draft_token_ids == (4, 3, 6, 5)
    assert event.parents == (-1, -1, 0, 1)
    subject.send([Propose(1, 10, (), 2, tree=TreeRequest(max_nodes=4, branching=2, row_price=0.1))])
    (event,) = await events(subject, 1)
    assert (event.draft_token_ids, event.parents) == ((4, 6), ()), "a lookup knows no prices"
    await subject.close()


async def test_an_unknown_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        await start_lookup_engine(Config(draft=DraftConfig(model="nonesuch"), cache_dir=str(tmp_path)), "ngram")
