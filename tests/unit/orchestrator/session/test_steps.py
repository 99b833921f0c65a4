"""Steps of reasoning between rounds over tokens: whatever happens, each token is of a step that stood or the target's
own after those before it."""

from __future__ import annotations

import dataclasses
import itertools

import msgspec
import pytest

from orchestrator.drafting.remote_drafter import RemoteDrafter
from orchestrator.prompt_scoring import PromptScorer
from orchestrator.requests.reasoning import ReasoningMarks, ReasoningParser
from orchestrator.step_judges import Judgement, ScoreJudge, StepJudge
from orchestrator.step_rounds import DraftModels, StepRounds
from pilotfish.errors import InternalError
from pilotfish.messages import Decode, OpenSequence, Proposal, Propose, Verdict
from pilotfish.types import FinishReason, TokenOrigin
from tests.support.memory_replicas import next_token

PROMPT = (1, 2, 3)
DIGITS = range(10, 20)


class FakeJudge(StepJudge):
    """Lets every n-th step stand."""

    def __init__(self, stands=(True,)) -> None:
        self._stands = itertools.cycle(stands)
        self.accepted: dict[int, tuple[int, ...]] = {}
        """By the committed tokens that they follow."""
        self.judged: list[int] = []

    async def judge(self, sequence, step) -> Judgement:
        self.judged.append(sequence.length)
        if not next(self._stands):
            return Judgement(0)
        self.accepted[sequence.length] = step
        return Judgement(9)


class FailingJudge(FakeJudge):
    async def judge(self, sequence, step) -> Judgement:
        raise InternalError("no judgement")


class DigitTokenizer:
    """Of the scores only."""

    def __init__(self, toy) -> None:
        self.bytes_by_token = toy.bytes_by_token

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        return [DIGITS[int(text)]] if text.isdigit() else [40, 41]


@pytest.fixture
def writer(world, memory_link):
    """A draft model that says what the target would not."""
    link = memory_link("writer")

    def other_words(event):
        if isinstance(event, Proposal):
            drafted = tuple((token_id + 7) % 50 for token_id in event.draft_token_ids)
            return (Proposal(event.sequence_id, event.base_length, drafted),)
        return (event,)

    link.on_event = other_words
    return link


@pytest.fixture
def start(world, memory_pool, writer, toy_tokenizer):
    """Makes a session with steps, and its judge. ends: letters that end a step."""

    def make(
        judge=None, ends="ACEGIKMOQSUWY", thoughts=None, step_max_tokens=20, step_tokens=1000, deadline_s=5, **fields
    ):
        session = world.session(**fields)
        request = session.sequence.request
        options = dataclasses.replace(
            request.speculation, level="step", step_max_tokens=step_max_tokens, step_tokens=step_tokens
        )
        world.writers = memory_pool(writer)
        world.judge = judge or FakeJudge()
        session.steps = StepRounds(
            dataclasses.replace(request, speculation=options),
            RemoteDrafter(DraftModels(world.writers), lambda _: deadline_s),
            world.judge,
            token_bytes=toy_tokenizer.token_bytes,
            thoughts=thoughts,
            ends=[end.encode() for end in ends],
        )
        return session

    return make


def replayed(accepted, num_tokens):
    """What the target says where no step stood."""
    tokens = list(PROMPT)
    while len(tokens) < len(PROMPT) + num_tokens:
        tokens += accepted.get(len(tokens)) or (next_token(tokens),)
    return tuple(tokens[len(PROMPT) :][:num_tokens])


def assert_all_are_counted(session) -> None:
    stats, sequence = session.speculation_stats, session.sequence
    by_rounds = stats.num_accepted_tokens + stats.num_plain_tokens + stats.num_step_tokens
    # A round has a token of the target's own, but the last may lack it.
    assert sequence.num_output_tokens - by_rounds in (stats.num_rounds, stats.num_rounds - 1)


@pytest.mark.parametrize("stands", [(True,), (False,), (True, False), (False, False, True)])
@pytest.mark.parametrize(("mode", "step_by_step"), [("on", False), ("on", True), ("off", True), ("auto", True)])
async def test_every_token_is_of_a_standing_step_or_the_targets_own(world, start, stands, mode, step_by_step) -> None:
    world.target_a.decodes_step_by_step = step_by_step
    session = start(FakeJudge(stands), mode=mode)
    chunks = await world.collect(session)
    assert world.tokens_of(chunks) == replayed(world.judge.accepted, 40)
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    stats = session.speculation_stats
    assert stats.num_steps >= stats.num_accepted_steps == len(world.judge.accepted)
    assert bool(stats.num_accepted_steps) == any(stands)
    assert stats.num_step_tokens == sum(map(len, world.judge.accepted.values()))
    assert_all_are_counted(session)
    assert (stats.reason_id, session.steps.limitation.reason) == ("mode_off" if mode == "off" else "", None)
    world.assert_nothing_is_left()
    assert not world.writers.links[0].mailboxes


async def test_a_run_is_left_where_a_step_ends_and_another_asked_for(world, start) -> None:
    world.target_a.decodes_step_by_step = True
    session = start(FakeJudge((True, False)), mode="off")
    assert await world.tokens(session) == replayed(world.judge.accepted, 40)
    runs = [command for command in world.target_a.commands if isinstance(command, Decode)]
    assert len(runs) == session.controller.num_rounds_by_k[0] > 3
    assert all(run.num_tokens > 0 for run in runs)


async def test_the_first_token_waits_for_no_drafter_and_the_last_is_the_targets(world, start) -> None:
    chunks = await world.collect(start(max_tokens=2))
    assert [chunk.origins for chunk in chunks] == [(TokenOrigin.PLAIN,), (TokenOrigin.PLAIN,)]
    assert not world.judge.accepted


async def test_a_step_ends_behind_its_end_or_at_its_limit(world, start) -> None:
    await world.tokens(start(step_max_tokens=6, max_tokens=60))
    for step in list(world.judge.accepted.values())[:-1]:
        ends = [index for index, token_id in enumerate(step) if chr(ord("A") + token_id) in "ACEGIKMOQSUWY"]
        assert ends == [len(step) - 1] or (not ends and len(step) == 6)


async def test_a_fallen_step_is_forgotten_by_the_drafter(world, start, writer) -> None:
    """What it drafts next stands on what the target wrote instead."""
    answer, known = writer.on_event, {}

    def look(event):
        if isinstance(event, Proposal):
            known[event.base_length] = tuple(writer.tokens[event.sequence_id])
        return answer(event)

    writer.on_event = look
    session = start(FakeJudge((False,)))
    text = (*PROMPT, *replayed({}, 40))
    assert await world.tokens(session) == text[len(PROMPT) :]
    assert session.speculation_stats.num_steps == len(world.judge.judged) > 2
    assert all(known[base] == text[:base] for base in world.judge.judged)


async def test_without_a_draft_model_the_target_goes_on(world, start, writer) -> None:
    writer.is_connected = False
    session = start()
    assert await world.tokens(session) == replayed({}, 40)
    assert session.speculation_stats.reason_id == "no_steps"


async def test_lookups_write_no_steps(world, start, writer) -> None:
    writer.model = msgspec.structs.replace(writer.model, proposer="suffix")
    session = start()
    assert await world.tokens(session) == replayed({}, 40)
    assert "no language model" in session.speculation_stats.reason


async def test_a_draft_replica_that_dies_in_a_step_costs_that_step(world, start, writer) -> None:
    answer, num_proposals = writer.on_event, itertools.count()

    def die(event):
        if isinstance(event, Proposal) and next(num_proposals) == 3:
            writer.lose()
        return answer(event)

    writer.on_event = die
    session = start()
    tokens = await world.tokens(session)
    assert world.judge.accepted
    assert tokens == replayed(world.judge.accepted, 40)
    assert session.speculation_stats.reason_id == "no_steps"
    assert_all_are_counted(session)
    world.assert_nothing_is_left()


async def test_a_draft_that_comes_late_is_tried_again_soon_and_then_ever_later(world, start, writer) -> None:
    writer.on_event = lambda event: ()
    session = start(step_max_tokens=60, max_tokens=120, ends="?", deadline_s=0.001)
    assert await world.tokens(session) == replayed({}, 120)
    tried = [command.base_length - len(PROMPT) for command in writer.commands if isinstance(command, Propose)]
    assert tried == [1, 21, 56, 116]  # 16, 32 and 60 tokens later, and what the round brings
    assert "deadline" in session.speculation_stats.reason


async def test_a_judge_that_fails_costs_nothing_but_its_steps(world, start) -> None:
    session = start(FailingJudge())
    assert await world.tokens(session) == replayed({}, 40)
    assert "no judgement" in session.speculation_stats.reason
    world.assert_nothing_is_left()


async def test_a_target_that_dies_while_it_judges_is_replaced(world, start, toy_tokenizer) -> None:
    world.targets.links.append(world.target_b)
    scorer = PromptScorer(world.targets, DigitTokenizer(toy_tokenizer), acquire_timeout_s=1, max_draft_tokens=8)

    def scored(link):
        def answer(event):
            opening = next(
                command
                for command in reversed(link.commands)
                if isinstance(command, OpenSequence) and command.sequence_id == event.sequence_id
            )
            if not opening.sampling.logit_bias or not isinstance(event, Verdict):
                return (event,)
            if link is world.target_a:
                link.lose()
            return (msgspec.structs.replace(event, token_ids=(DIGITS[8],)),)

        return answer

    world.target_a.on_event, world.target_b.on_event = scored(world.target_a), scored(world.target_b)
    accepted: dict[int, tuple[int, ...]] = {}

    class Recorder(ScoreJudge):
        async def judge(self, sequence, step) -> Judgement:
            judgement = await super().judge(sequence, step)
            accepted[sequence.length] = step
            return judgement

    session = start(Recorder(scorer, DigitTokenizer(toy_tokenizer)))
    tokens = await world.tokens(session)
    assert not world.target_a.is_connected
    assert accepted
    assert tokens == replayed(accepted, 40)
    assert_all_are_counted(session)
    world.assert_nothing_is_left()


async def test_a_request_never_holds_two_places_of_the_target(world, start, toy_tokenizer) -> None:
    most = 0
    judge = FakeJudge()
    given = judge.judge

    async def looked_at(sequence, step):
        nonlocal most
        most = max(most, world.target_a.num_sequences)
        return await given(sequence, step)

    judge.judge = looked_at
    await world.tokens(start(judge))
    assert judge.accepted
    assert most == 0


async def test_behind_the_thoughts_all_is_the_targets_own(world, start, toy_tokenizer) -> None:
    """The end mark ends a step as well."""
    plain = await world.tokens(start(max_tokens=60, ends="ACE"))
    mark = chr(ord("A") + plain[len(plain) // 2])
    thoughts = ReasoningParser(ReasoningMarks("none", mark), is_inside=True)
    session = start(thoughts=thoughts, max_tokens=60, ends="ACE" + mark)
    tokens = await world.tokens(session)
    end = tokens.index(ord(mark) - ord("A")) + 1
    assert world.judge.accepted
    assert all(base - len(PROMPT) + len(step) <= end for base, step in world.judge.accepted.items())
    assert tokens == replayed(world.judge.accepted, 60)


async def test_an_answer_without_thoughts_has_no_steps(world, start) -> None:
    session = start(thoughts=ReasoningParser(ReasoningMarks("<think>", "</think>"), is_inside=False))
    assert await world.tokens(session) == replayed({}, 40)
    assert session.speculation_stats.num_steps == 0


async def test_behind_step_tokens_all_is_the_targets_own(world, start) -> None:
    tokens = await world.tokens(start(step_tokens=12))
    assert all(base - len(PROMPT) + len(step) <= 12 for base, step in world.judge.accepted.items())
    assert world.judge.accepted
    assert tokens == replayed(world.judge.accepted, 40)


async def test_a_stop_string_in_a_step_ends_the_answer_there(world, start) -> None:
    tokens = await world.tokens(start())
    base = next(base for base, step in world.judge.accepted.items() if len(step) > 1)
    cut = base - len(PROMPT) + 1
    stop = "".join(chr(ord("A") + token_id) for token_id in tokens[cut - 2 : cut])
    first = "".join(chr(ord("A") + token_id) for token_id in tokens).index(stop)
    session = start(stop=(stop,))
    chunks = await world.collect(session)
    assert world.tokens_of(chunks) == tokens[: first + len(stop)]
    assert chunks[-1].finish_reason is FinishReason.STOP
    assert session.speculation_stats.num_step_tokens <= len(tokens[: first + len(stop)])


async def test_a_drafter_does_not_end_the_answer(world, start) -> None:
    """Of its step only what comes before a stop token is judged."""
    await world.tokens(start())
    step = next(step for step in world.judge.accepted.values() if len(step) > 2)
    session = start(stop_token_ids=(step[1],))
    chunks = await world.collect(session)
    assert all(step[1] not in each for each in world.judge.accepted.values())
    assert world.tokens_of(chunks) == replayed(world.judge.accepted, len(world.tokens_of(chunks)))
