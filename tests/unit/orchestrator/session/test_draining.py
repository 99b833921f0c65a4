"""A replica that drains: in whatever mode, a session leaves it as soon as another takes its sequence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.session import Session
from tests.support.toy_model import continuation
from tests.unit.orchestrator.session.conftest import PROMPT, FakeJudge, World, replayed

NUM_TOKENS = 400
MANY = {"max_tokens": NUM_TOKENS}


def plain(world: World) -> Session:
    return world.session(mode="off", **MANY)


def in_target(world: World) -> Session:
    for link in (world.target_a, world.target_b):
        link.model = replace(link.model, proposer="eagle3")
    return world.session(proposer="eagle3", **MANY)


def remote(world: World) -> Session:
    return world.session(**MANY)


def adaptive(world: World) -> Session:
    return world.session(mode="auto", **MANY)


def lookup(world: World) -> Session:
    return world.session(proposer="suffix", **MANY)


def ahead(world: World) -> Session:
    world.draft_a.drafts_ahead = True
    world.target_a.step_s = world.target_b.step_s = 0.0001
    return world.session(predraft=PredraftPolicy("on", 48), **MANY)


@pytest.mark.parametrize("make", [plain, in_target, remote, adaptive, lookup, ahead])
@pytest.mark.parametrize("is_there_before", [True, False])
async def test_a_sequence_leaves_a_target_that_drains(
    world: World, make: Callable[[World], Session], is_there_before: bool
) -> None:
    session = make(world)
    world.target_a.decodes_step_by_step = world.target_b.decodes_step_by_step = True
    if is_there_before:
        world.targets.links.append(world.target_b)
    chunks, num_after = [], 0
    async with session.running() as answer:
        while (chunk := await answer.take()) is not None:
            chunks.append(chunk)
            num_tokens = session.sequence.num_output_tokens
            world.target_a.is_draining |= num_tokens > 60
            if num_tokens > 120 and not is_there_before and world.target_b not in world.targets.links:
                assert world.target_a.mailboxes, "without another it goes on here"
                world.targets.links.append(world.target_b)
            elif world.target_a.is_draining and world.target_b in world.targets.links:
                num_after += bool(world.target_a.mailboxes)
    assert num_after <= 2  # what was under way
    assert world.tokens_of(chunks) == continuation(PROMPT, NUM_TOKENS)
    assert session.target.num_failovers == 0
    world.assert_nothing_is_left()


@pytest.mark.parametrize("mode", ["on", "auto", "off"])
async def test_steps_pause_while_the_only_target_drains(world: World, start, mode: str) -> None:
    """A sequence that is closed for a step could not be opened again."""
    session = start(FakeJudge((True, False)), mode=mode, max_tokens=200)
    world.target_a.decodes_step_by_step = world.target_b.decodes_step_by_step = True
    chunks, num_steps = [], 0
    async with session.running() as answer:
        while (chunk := await answer.take()) is not None:
            chunks.append(chunk)
            num_tokens = session.sequence.num_output_tokens
            if not world.target_a.is_draining:
                world.target_a.is_draining = num_tokens > 60 and bool(world.target_a.mailboxes)
                num_steps = session.steps.num_steps
            elif world.target_b not in world.targets.links:
                assert session.steps.num_steps == num_steps
                world.targets.links += [world.target_b] * (num_tokens > 120)
    assert session.steps.num_steps > num_steps > 0, "they go on with another target"
    assert world.tokens_of(chunks) == replayed(world.judge.accepted, 200)
    world.assert_nothing_is_left()


@pytest.mark.parametrize("is_there_another", [True, False])
async def test_a_sequence_leaves_a_drafter_that_drains(world: World, memory_link, is_there_another: bool) -> None:
    """Also while the session decodes plainly, and asks for no drafts."""
    session, draft_b = world.session(mode="auto", **MANY), memory_link("draft-b")
    world.target_a.decodes_step_by_step = True
    chunks, num_after = [], 0
    async with session.running() as answer:
        while (chunk := await answer.take()) is not None:
            chunks.append(chunk)
            if session.sequence.num_output_tokens <= 60:
                continue
            if not world.draft_a.is_draining:
                world.draft_a.is_draining = True
                world.drafts.links += [draft_b] * is_there_another
            num_after += len(world.draft_a.mailboxes)
    assert num_after <= 16, "a run at most"
    assert world.tokens_of(chunks) == continuation(PROMPT, NUM_TOKENS)
    assert bool(draft_b.commands) == is_there_another
    world.assert_nothing_is_left()


async def test_a_run_that_is_left_is_counted_once(world: World) -> None:
    world.targets.links.append(world.target_b)
    world.target_a.decodes_step_by_step = True
    session, results = world.session(mode="off", max_tokens=60), []
    controller = world.machine.controller
    decide = controller.decide
    controller.decide = lambda result: results.append(result) or decide(result)  # type: ignore[method-assign]
    controller.end = results.append  # type: ignore[method-assign]
    async with session.running() as answer:
        while await answer.take() is not None:
            world.target_a.is_draining |= session.sequence.num_output_tokens > 20
    assert sum(result.num_plain_tokens for result in results) == 60
    assert len(results) <= 4
