"""Steps of reasoning between rounds over tokens: each token is of a step that stood or the target's own after those
before it."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.requests.reasoning import ReasoningMarks, ReasoningParser
from orchestrator.rounds.round_log import RoundLog
from pilotfish.messages import Decode, Proposal
from pilotfish.types import FinishReason, TokenOrigin
from tests.unit.orchestrator.session.conftest import PROMPT, FakeJudge, assert_all_are_counted, replayed


@pytest.mark.parametrize("stands", [(True,), (False,), (True, False), (False, False, True)])
@pytest.mark.parametrize(("mode", "step_by_step"), [("on", False), ("on", True), ("off", True), ("auto", True)])
async def test_every_token_is_of_a_standing_step_or_the_targets_own(world, start, stands, mode, step_by_step) -> None:
    world.target_a.decodes_step_by_step = step_by_step
    log = RoundLog(1000)
    session = start(FakeJudge(stands), mode=mode, log=log)
    chunks = await world.collect(session)
    assert world.tokens_of(chunks) == replayed(world.judge.accepted, 40)
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    stats = session.speculation_stats
    assert stats.num_steps >= stats.num_accepted_steps == len(world.judge.accepted)
    assert bool(stats.num_accepted_steps) == any(stands)
    assert stats.num_step_tokens == sum(map(len, world.judge.accepted.values()))
    assert_all_are_counted(session)
    assert sum(record.num_tokens for record in log.records) == 40
    decisions = [record.decision for record in log.records]
    of_steps = [each for each in decisions if not each.num_draft_tokens and not each.num_decode_tokens]
    assert len(of_steps) == stats.num_accepted_steps
    assert (stats.reason_id, session.steps.limitation.reason) == ("mode_off" if mode == "off" else "", None)
    world.assert_nothing_is_left()
    assert not world.writers.links[0].mailboxes


@pytest.mark.parametrize("proposer", ["eagle3", "suffix"])
@pytest.mark.parametrize("mode", ["on", "auto"])
async def test_inside_a_fallen_step_any_proposer_drafts(world, start, proposer, mode) -> None:
    world.target_a.model = msgspec.structs.replace(world.target_a.model, proposer="eagle3")
    session = start(FakeJudge((True, False, False)), proposer=proposer, mode=mode, max_tokens=120)
    assert await world.tokens(session) == replayed(world.judge.accepted, 120)
    assert world.judge.accepted
    assert_all_are_counted(session)
    world.assert_nothing_is_left()


async def test_a_run_is_left_where_a_step_ends_and_another_asked_for(world, start) -> None:
    world.target_a.decodes_step_by_step = True
    session = start(FakeJudge((True, False)), mode="off")
    assert await world.tokens(session) == replayed(world.judge.accepted, 40)
    runs = [command for command in world.target_a.commands if isinstance(command, Decode)]
    assert len(runs) == world.machine.controller.num_rounds_by_k[0] > 3
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
    session = start(FakeJudge((False,)), ends="?", max_tokens=100)
    text = (*PROMPT, *replayed({}, 100))
    assert await world.tokens(session) == text[len(PROMPT) :]
    assert session.speculation_stats.num_steps == len(world.judge.judged) > 2
    assert all(known[base] == text[:base] for base in world.judge.judged)


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
