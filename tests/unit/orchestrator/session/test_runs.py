"""Drafts that cut into a run of plain decoding."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from orchestrator.control.acceptance import ProposerAcceptance
from orchestrator.control.decision import Decision
from orchestrator.control.reasons import Reason
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient
from orchestrator.session import Session
from pilotfish.config import SpeculationConfig
from pilotfish.messages import Decode, Proposal, Propose, SequenceError, Verify
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


@pytest.mark.parametrize("mode", ["on", "auto"])
@pytest.mark.parametrize("has_pool", [True, False])
async def test_a_lookup_before_the_pool_spares_it_most_questions(world, toy_continuation, has_pool, mode) -> None:
    if not has_pool:
        world.drafts.links.clear()
    session = world.session(max_tokens=300, lookup="suffix", mode=mode)
    assert await world.tokens(session) == toy_continuation(PROMPT, 300)
    assert session.sequence.statistics.num_accepted_tokens > 150
    questions = [command for command in world.draft_a.commands if isinstance(command, Propose)]
    assert bool(questions) == has_pool
    assert len(questions) < session.sequence.statistics.num_rounds / 2
    told = list(PROMPT)
    for question in questions:
        told[question.base_length - len(question.new_token_ids) :] = question.new_token_ids
        assert tuple(told) == (*PROMPT, *toy_continuation(PROMPT, 300))[: question.base_length]
    world.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("reason", "goes_on"),
    [(Reason.ACCEPTANCE, True), (Reason.ROUND_TIME, True), (Reason.LOAD, False), (Reason.BATCH_SIZE, False)],
)
async def test_where_the_pools_drafts_do_not_pay_the_lookup_goes_on(world, toy_continuation, reason, goes_on) -> None:
    world.target_a.decodes_step_by_step = True
    session = world.session(max_tokens=300, lookup="suffix", mode="auto")
    controller = world.machine.controller
    decide = controller.decide

    def plainly(result):
        decide(result)
        return Decision(0, min(16, result.num_remaining_tokens), reason)

    controller.decide = plainly
    assert await world.tokens(session) == toy_continuation(PROMPT, 300)
    assert (session.sequence.statistics.num_accepted_tokens > 100) == goes_on
    assert session.sequence.statistics.num_accepted_tokens == 0 or goes_on
    assert not any(isinstance(command, Propose) for command in world.draft_a.commands)
    assert world.control.acceptance["draft"].probabilities(1) == ProposerAcceptance().probabilities(1)
    world.assert_nothing_is_left()


async def test_what_a_lookup_before_the_pool_gets_right_is_not_learnt_of_the_pool(world) -> None:
    """Whose drafts are all wrong."""

    def wrong(event):
        if isinstance(event, Proposal):
            event = msgspec.structs.replace(
                event, draft_token_ids=tuple((each + 1) % 50 for each in (event.draft_token_ids))
            )
        return (event,)

    world.draft_a.on_event = wrong
    session = world.session(max_tokens=300, lookup="suffix")
    await world.tokens(session)
    assert session.sequence.statistics.num_accepted_tokens > 150
    assert world.control.acceptance["draft"].probabilities(1)[0] < 0.3
    assert world.control.acceptance.keys() == {"draft"}
    world.drafts.links.clear()
    await world.tokens(world.session(max_tokens=300, lookup="suffix"))
    assert world.control.acceptance["suffix"].probabilities(1)[0] > 0.5
    assert world.control.acceptance["draft"].probabilities(1)[0] < 0.3


async def test_where_answers_are_short_no_drafter_is_started_before_one_is_longer(world, toy_continuation) -> None:
    answer = toy_continuation(PROMPT, 60)
    end = answer[4]
    world.control.config = SpeculationConfig(min_output_tokens=12)
    for _ in range(16):
        await world.tokens(world.session(mode="auto", stop_token_ids=(end,)))
    opened = len(world.draft_a.commands)
    assert opened, "nothing was known of them"
    short = world.session(mode="auto", stop_token_ids=(end,))
    assert await world.tokens(short) == answer[:5]
    assert short.speculation_stats.reason_id == "short_output"
    assert len(world.draft_a.commands) == opened
    for fields in ({"mode": "on"}, {"mode": "auto", "proposer": "ngram"}):
        assert await world.tokens(world.session(stop_token_ids=(end,), **fields)) == answer[:5]
        assert not world.machine.controller.num_rounds_by_k.keys() <= {0}, fields
    num_before = len(world.draft_a.commands)
    long = world.session(mode="auto", max_tokens=60)
    assert await world.tokens(long) == answer
    proposed = [command.base_length for command in world.draft_a.commands[num_before:] if isinstance(command, Propose)]
    assert proposed[0] == len(PROMPT) + 12
    world.assert_nothing_is_left()
