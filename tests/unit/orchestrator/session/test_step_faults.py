"""Whatever fails while steps are written and judged, the request goes on, and no token is lost or counted twice."""

from __future__ import annotations

import itertools

import msgspec

from orchestrator.prompt_scoring import PromptScorer
from orchestrator.step_judges import Judgement, ScoreJudge
from pilotfish.config import StepsConfig
from pilotfish.errors import InternalError
from pilotfish.messages import OpenSequence, Proposal, Propose, Verdict
from tests.unit.orchestrator.session.conftest import PROMPT, FakeJudge, assert_all_are_counted, replayed

DIGITS = range(10, 20)


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

    session = start(Recorder(scorer, DigitTokenizer(toy_tokenizer), StepsConfig()))
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
