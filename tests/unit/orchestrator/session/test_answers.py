"""What the client gets, by mode and by drafter."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from orchestrator.control.decision import Decision, RoundResult
from pilotfish.messages import Decode, Event, Verify
from pilotfish.types import FinishReason, LoadReport, TokenOrigin, TreeRequest

PROMPT = (1, 2, 3)


@pytest.mark.parametrize("proposer", ["draft", "ngram", "suffix", "eagle3"])
@pytest.mark.parametrize("mode", ["on", "auto", "off"])
async def test_every_mode_yields_the_targets_own_tokens(world, toy_continuation, mode, proposer) -> None:
    world.target_a.model = msgspec.structs.replace(world.target_a.model, proposer="eagle3")
    chunks = await world.collect(world.session(mode=mode, proposer=proposer))
    assert world.tokens_of(chunks) == toy_continuation(PROMPT, 40)
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    world.assert_nothing_is_left()


async def test_what_comes_while_the_client_is_busy_is_one_chunk_after_the_next(world, toy_continuation) -> None:
    """A target decodes step by step; the client is busy from its second chunk until nothing more comes by itself."""
    world.target_a.decodes_step_by_step = True
    session = world.session(mode="off", max_tokens=30)
    async with session.running() as chunks:
        found = [await chunks.take(), await chunks.take()]
        for _ in range(20):
            await asyncio.sleep(0)
        assert session.has_more_at_hand
        num_committed = session.sequence.num_output_tokens
        while (chunk := await chunks.take()) is not None:
            found.append(chunk)
    assert [len(chunk.token_ids) for chunk in found[:2]] == [1, 1]
    assert num_committed == 2
    assert len(found[2].token_ids) > 8
    assert world.tokens_of(found) == toy_continuation(PROMPT, 30)
    world.assert_nothing_is_left()


async def test_speculation_saves_rounds_and_its_statistics_add_up(world) -> None:
    session = world.session(k=4, max_tokens=40)
    chunks = await world.collect(session)
    statistics = session.sequence.statistics
    assert len([command for command in world.target_a.commands if isinstance(command, Verify)]) == statistics.num_rounds
    assert statistics.num_accepted_tokens == statistics.num_draft_tokens  # the drafter is the target's twin
    assert session.sequence.num_plain_tokens + statistics.num_accepted_tokens + statistics.num_rounds == 40
    origins = [origin for chunk in chunks for origin in chunk.origins]
    assert origins.count(TokenOrigin.ACCEPTED) == statistics.num_accepted_tokens
    assert origins.count(TokenOrigin.PLAIN) == session.sequence.num_plain_tokens
    assert world.machine.controller.limitation.text == ""


async def test_statistics_of_trees_are_by_depth(world) -> None:
    """The drafter names a wrong token beside every right one: half of the tokens, all of the depths."""
    session = world.session(k=3, max_tokens=41, tree=TreeRequest(6, 2))
    chunks = await world.collect(session)
    statistics = session.sequence.statistics
    assert [command.parents for command in world.target_a.commands if isinstance(command, Verify)] == [
        (-1, -1, 1, 1, 3, 3)
    ] * statistics.num_rounds
    assert statistics.num_draft_tokens == 2 * statistics.num_accepted_tokens == 6 * statistics.num_rounds
    assert statistics.acceptance_per_position == (1.0, 1.0, 1.0)
    assert statistics.mean_acceptance_length == 4
    origins = [origin for chunk in chunks for origin in chunk.origins]
    assert origins.count(TokenOrigin.BONUS) == statistics.num_rounds


async def test_a_target_that_drafts_for_itself_needs_one_command(world) -> None:
    world.target_a.model = msgspec.structs.replace(world.target_a.model, proposer="eagle3")
    session = world.session(k=4, max_tokens=41, proposer="eagle3")
    await world.collect(session)
    (_, run, *_) = world.target_a.commands
    assert run == Decode(sequence_id=1, base_length=len(PROMPT), num_tokens=41, num_draft_tokens=4)
    statistics = session.sequence.statistics
    assert (statistics.num_draft_tokens, statistics.num_accepted_tokens) == (32, 32)
    assert session.sequence.num_plain_tokens == 1
    assert min(world.control.acceptance["eagle3"].probabilities(4)) > 0.9, "every draft was accepted"
    assert world.machine.controller.limitation.text == ""
    assert world.draft_a.commands == []
    world.assert_nothing_is_left()


async def test_mode_off_is_one_run_and_never_talks_to_a_drafter(world) -> None:
    session = world.session(mode="off", max_tokens=40)
    await world.collect(session)
    runs = [command for command in world.target_a.commands if isinstance(command, Decode)]
    assert [run.num_tokens for run in runs] == [40]
    assert world.draft_a.commands == []
    assert "off" in world.machine.controller.limitation.text


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_stop_string_inside_a_block_cuts_text_tokens_and_statistics(world, toy_continuation, mode) -> None:
    expected = toy_continuation(PROMPT, 40)
    pieces = [world.tokenizer.token_bytes[token_id].decode() for token_id in expected]
    stop = "".join(pieces[6:8])
    session = world.session(mode=mode, stop=(stop,))
    chunks = await world.collect(session)
    text = "".join(pieces)
    end = text.index(stop)
    assert "".join(chunk.text for chunk in chunks) == text[:end]
    assert world.tokens_of(chunks) == expected[: end + 2]
    assert session.sequence.stopped_by == stop
    assert session.sequence.finish_reason is FinishReason.STOP
    statistics = session.sequence.statistics
    origins = [origin for chunk in chunks for origin in chunk.origins]
    assert origins.count(TokenOrigin.ACCEPTED) == statistics.num_accepted_tokens
    world.assert_nothing_is_left()


@pytest.mark.parametrize("mode", ["on", "off"])
@pytest.mark.parametrize("num_chunks", [0, 1, 2, 5])
async def test_leaving_early_frees_everything(world, mode, num_chunks) -> None:
    world.target_a.decodes_step_by_step = True
    async with world.session(mode=mode).running() as chunks:
        for _ in range(num_chunks):
            await chunks.take()
    world.assert_nothing_is_left()


async def test_the_controller_hears_of_every_token_every_prefill_and_the_replicas_costs(world) -> None:
    """Half a second of prefill for each event of the target: a step of a run, or a verdict on a draft."""
    session, target, results = world.session(mode="on", max_tokens=30), world.target_a, []
    decide = world.machine.controller.decide

    def hear(result: RoundResult) -> Decision:
        results.append(result)
        return decide(result)

    def arriving(event: Event) -> tuple[Event]:
        target.load = LoadReport(prefill_time_ns=target.load.prefill_time_ns + 500_000_000)
        return (event,)

    world.machine.controller.decide, world.machine.controller.end, target.on_event = hear, results.append, arriving
    await world.collect(session)
    drafted = [result for result in results if result.num_draft_tokens]
    assert all(0 < result.target_s < 30 for result in drafted)
    assert [result.prefill_s for result in drafted] == [0.5] * session.sequence.statistics.num_rounds
    assert sum(result.num_committed_tokens for result in results) == 30
    assert {result.replica_id for result in drafted} == {"target-a"}
    assert all(result.step_table is target.step_table for result in drafted)


async def test_a_drafter_that_the_target_lacks_is_named(world) -> None:
    session = world.session(proposer="eagle3")
    await world.collect(session)
    assert session.speculation_stats.reason_id == "no_drafter"
    assert "no drafter eagle3 in the target: it has none" in session.speculation_stats.reason


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_client_that_does_not_read_pauses_its_own_request(world, toy_continuation, mode) -> None:
    """What it leaves unread is bounded; the round under way does not wait for it."""
    world.target_a.decodes_step_by_step = True
    session = world.session(mode=mode, max_tokens=400, run=16, max_unread=8)
    async with session.running() as chunks:
        for _ in range(2000):
            await asyncio.sleep(0)
        assert 8 <= session.sequence.num_output_tokens <= 8 + 16 + 5
        text: list[int] = []
        while (chunk := await chunks.take()) is not None:
            text.extend(chunk.token_ids)
    assert tuple(text) == toy_continuation(PROMPT, 400)
    world.assert_nothing_is_left()
