"""Drafts that cut into a run of plain decoding."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient
from orchestrator.rounds.plain_run import nears_end
from orchestrator.session import Session
from pilotfish.messages import Decode, SequenceError, Verify
from pilotfish.types import SequenceErrorCode

PROMPT = (1, 2, 3)


class Watcher(DrafterClient):
    """Has no idea when it is asked, and the truth, or worse, when it looks into a run."""

    def __init__(self, tell) -> None:
        self.tell = tell

    def ask(self, sequence, num_tokens, now_s) -> Draft:
        return NO_DRAFT

    def glance(self, sequence, num_tokens) -> Draft:
        return Draft(self.tell(sequence.tokens_since(0), num_tokens))


@pytest.fixture
def watched(world) -> Callable[..., Session]:
    """Makes a session whose drafter only glances; its target decodes while drafts travel."""
    world.target_a.decodes_step_by_step = world.target_b.decodes_step_by_step = True
    return lambda tell: world.session(max_tokens=60, drafter=Watcher(tell))


@pytest.mark.parametrize(
    ("num_coming", "token_s", "expected"),
    [(16, 0.0, True), (17, 0.0, False), (50, 0.001, True), (51, 0.001, False), (101, 0.0001, False)],
)
def test_a_run_is_extended_in_time(num_coming: int, token_s: float, expected: bool) -> None:
    assert nears_end(400, num_coming, token_s) is expected


async def test_a_draft_cuts_into_a_run(world, watched, toy_continuation) -> None:
    session = watched(toy_continuation)
    assert await world.tokens(session) == toy_continuation(PROMPT, 60)
    statistics = session.sequence.statistics
    assert statistics.num_rounds >= 5
    # What was decoded while the draft travelled is no part of it any more; all the rest is accepted.
    assert statistics.num_accepted_tokens == statistics.num_draft_tokens >= 2 * statistics.num_rounds
    assert session.target.num_failovers == 0
    world.assert_nothing_is_left()


async def test_a_wrong_draft_does_not_disturb_a_run(world, watched, toy_continuation) -> None:
    answer = toy_continuation(PROMPT, 60)
    wrong = next(token_id for token_id in range(50) if token_id not in answer)
    session = watched(lambda tokens, k: (wrong,) * k)
    assert await world.tokens(session) == answer
    assert session.sequence.statistics.num_accepted_tokens == 0
    runs = [command for command in world.target_a.commands if isinstance(command, Decode)]
    assert len(runs) <= 14
    assert session.target.num_failovers == 0


@pytest.mark.parametrize("code", [SequenceErrorCode.STALE, SequenceErrorCode.INVALID])
async def test_a_refused_draft_is_no_end_of_the_run(world, watched, toy_continuation, code) -> None:
    session = watched(toy_continuation)

    def refuse(command):
        if isinstance(command, Verify):
            return [SequenceError(command.sequence_id, code, "too late", command.base_length)]
        return handle(command)

    handle, world.target_a._handle = world.target_a._handle, refuse
    assert await world.tokens(session) == toy_continuation(PROMPT, 60)
    assert session.target.num_failovers == 0
    assert session.sequence.num_plain_tokens == 60


@pytest.mark.parametrize("proposer", ["ngram", "suffix"])
async def test_lookups_cut_into_runs(world, toy_continuation, proposer) -> None:
    world.target_a.decodes_step_by_step = True
    session = world.session(max_tokens=300, proposer=proposer)
    assert await world.tokens(session) == toy_continuation(PROMPT, 300)
    assert session.sequence.statistics.num_accepted_tokens > 100
    world.assert_nothing_is_left()
