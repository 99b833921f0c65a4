"""What is said to a draft replica for one row, step by step, and what is made of its answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.drafting.ahead_policy import AheadPolicy, Budget
from pilotfish.config import TelemetryConfig
from pilotfish.errors import UnavailableError
from pilotfish.integrations.vllm.batch_rows import BatchStep, RowStep
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.drafting import Drafting
from pilotfish.integrations.vllm.row_trace import RowTracing
from pilotfish.integrations.vllm.step import DraftingStep, ToldBatch
from pilotfish.integrations.vllm.unused_drafts import ShadowFate
from pilotfish.messages import CloseSequence, OpenSequence, PreparedDrafts, Proposal, Propose, SequenceError
from pilotfish.types import SequenceErrorCode

PROMPT = (1, 2, 3)
K = 4


class FakePool:
    def __init__(self, link: Any) -> None:
        self.links = (link,)

    def pick(self) -> Any:
        return self.links[0] if self.links[0].is_healthy else None


class Row:
    """A row of vLLM, and the steps that it is in."""

    def __init__(self, drafting: Drafting) -> None:
        self.drafting = drafting
        self.length = 0
        self.step: DraftingStep

    def begin(
        self,
        *new_token_ids: int,
        deadline_s: float = 0.0,
        is_probe: bool = False,
        is_shadow: bool = False,
        num_verified: int | None = None,
        untold: tuple[ToldBatch, ...] = (),
    ) -> DraftingStep:
        tokens = (*PROMPT, *new_token_ids) if self.length == 0 else new_token_ids
        self.length += len(tokens)
        row = RowStep(1, self.length, tokens, len(PROMPT) if self.length == len(tokens) else 0, len(new_token_ids))
        self.step = DraftingStep(
            BatchStep((row,), ()),
            K,
            deadline_s,
            is_waited_for=not (is_probe or is_shadow),
            is_shadow=is_shadow,
            num_verified=None if num_verified is None else {1: num_verified},
            untold=untold,
        )
        self.drafting.begin(self.step)
        return self.step


@pytest.fixture
def counters() -> ProposerCounters:
    return ProposerCounters()


@pytest.fixture
def shadows() -> list[ShadowFate]:
    """What became of drafts that nobody waited for."""
    return []


@pytest.fixture
async def row(link, counters, shadows) -> Row:
    tracing, policy = RowTracing(TelemetryConfig()), AheadPolicy("on", 16)
    return Row(Drafting(FakePool(link), policy, counters, tracing, vocab_size=100, note_shadow=shadows.append))


def answer(row: Row, link: Any, *token_ids: int) -> None:
    assert link.mailbox is not None
    link.mailbox.deliver(Proposal(7, row.length, token_ids))


async def test_a_new_row_is_opened_and_asked_for_and_not_waited_for(row, link) -> None:
    step = row.begin(4)
    opened, propose = link.commands
    assert isinstance(opened, OpenSequence)
    assert (opened.prompt_token_ids, opened.output_token_ids) == (PROMPT, (4,))
    assert isinstance(propose, Propose)
    assert (propose.base_length, propose.new_token_ids, propose.num_draft_tokens) == (4, (), K)
    assert step.num_missing == 0
    answer(row, link, 5, 6)
    assert step.wait() == [[5, 6]]
    assert link.num_successes == 0  # the prompt was read meanwhile: it says nothing of the replica


async def test_from_the_second_step_on_it_is_waited_for(row, link, counters) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    row.step.wait()
    step = row.begin(5, 9)
    assert step.num_missing == 1
    assert link.commands[-1].new_token_ids == (5, 9)
    answer(row, link, 8)
    assert step.num_missing == 0
    assert step.wait() == [[8]]
    assert link.num_successes == 1
    assert (counters.acceptance.num_draft_tokens, counters.acceptance.num_accepted_tokens) == (2, 1)


async def test_an_answer_to_an_earlier_step_is_no_answer(row, link) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5)
    link.mailbox.deliver(Proposal(7, 4, (6,)))
    assert row.step.wait() == [[]]


async def test_a_missed_deadline_is_counted_once_and_its_rest_serves_the_next_step(row, link, counters) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5)
    assert row.step.wait() == [[]]
    answer(row, link, 6, 7, 8)
    assert (counters.num_missed_deadlines, len(link.failures)) == (1, 1)
    step = row.begin(6)
    assert step.wait() == [[7, 8]]
    assert counters.num_late_drafts == 1
    assert (counters.num_missed_deadlines, len(link.failures)) == (1, 1)


async def test_a_late_draft_that_vllm_did_not_say_is_forgotten(row, link) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5)
    row.step.wait()
    answer(row, link, 6, 7, 8)
    step = row.begin(9)
    assert step.num_missing == 1
    assert step.wait() == [[]]


async def test_an_answer_that_never_comes_is_a_failure(row, link, counters) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5)
    row.step.wait()
    row.begin(6)
    assert (counters.num_missed_deadlines, len(link.failures)) == (1, 1)


async def test_a_foreseen_outcome_needs_no_answer(row, link, counters) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    assert link.commands[-1].ahead is not None
    link.mailbox.deliver(PreparedDrafts(7, 4, (5, 6), (1, 2), (9, 8), (10, 11, 12, 13)))
    step = row.begin(5, 9)
    assert step.wait() == [[10, 11]]
    assert link.commands[-1].is_prepared
    assert link.commands[-1].base_length == 6
    assert counters.num_missed_deadlines == 0


async def test_a_prepared_draft_that_comes_while_it_is_asked_for_is_the_answer(row, link, counters) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    row.step.wait()
    step = row.begin(5, 9)
    link.mailbox.deliver(PreparedDrafts(7, 4, (5, 6), (1, 2), (9, 8), (10, 11, 12, 13)))
    assert step.wait() == [[10, 11]]
    answer(row, link, 10, 11)  # the replica answers, too, when vLLM verifies already
    row.begin(10, 11, 12)
    assert (counters.num_missed_deadlines, link.failures, link.num_successes) == (0, [], 1)


async def test_a_replica_that_forgot_the_row_gets_it_again(row, link) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5)
    link.mailbox.deliver(SequenceError(7, SequenceErrorCode.UNKNOWN_SEQUENCE, "who?", 5))
    assert row.step.wait() == [[]]
    row.begin(6)
    opened = link.commands[-2]
    assert isinstance(opened, OpenSequence)
    assert (opened.prompt_token_ids, opened.output_token_ids) == (PROMPT, (4, 5, 6))
    assert link.failures == []


@pytest.mark.parametrize(
    ("code", "noted"),
    [
        (SequenceErrorCode.RESOURCE_EXHAUSTED, "is_full"),
        (SequenceErrorCode.UNAVAILABLE, "is_draining"),
        (SequenceErrorCode.INTERNAL, "failures"),
    ],
)
async def test_a_refusal_is_told_to_the_link_as_what_it_is(row, link, code, noted) -> None:
    row.begin(4)
    link.mailbox.deliver(SequenceError(7, code, "no", 4))
    assert getattr(link, noted)
    assert link.mailbox is None


@pytest.mark.parametrize("token_ids", [(100,), (-1,), (1, 2, 3, 4, 5)])
async def test_what_no_drafter_says_is_a_failure_and_no_draft(row, link, token_ids) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5)
    answer(row, link, *token_ids)
    assert row.step.wait() == [[]]
    assert len(link.failures) == 1


async def test_a_row_leaves_a_replica_that_is_not_worth_staying_on(row, link) -> None:
    row.begin(4)
    link.is_healthy = False
    step = row.begin(5)
    assert link.commands[-1] == CloseSequence(7)
    assert step.num_missing == 0
    link.is_healthy = True
    row.begin(6)
    assert isinstance(link.commands[-2], OpenSequence)


async def test_a_replica_that_never_says_a_first_word_fails_however_often_it_is_asked(row, link, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    for token_id in range(9):
        row.begin(token_id)
        now[0] += 3.0
    assert link.failures == ["a sequence is not answered"] * 2


async def test_a_lost_connection_ends_the_wait(row, link) -> None:
    row.begin(4)
    answer(row, link)
    step = row.begin(5)
    link.is_connected = link.is_healthy = False
    link.mailbox.fail(UnavailableError("lost"))
    assert step.num_missing == 0
    assert not row.drafting.is_usable


async def test_a_prompt_that_is_still_read_is_opened_and_asked_nothing(row, link) -> None:
    row.begin()
    assert [type(command) for command in link.commands] == [OpenSequence]
    row.begin(4)
    assert link.commands[-1].new_token_ids == (4,)


async def test_a_step_that_wants_no_drafts_tells_nothing_and_the_next_one_everything(row, link) -> None:
    row.begin(4)
    answer(row, link)
    row.length += 1
    row.drafting.begin(DraftingStep(BatchStep((RowStep(1, row.length, (5,), 0, 1),), ()), 0, 0.0))
    assert len(link.commands) == 2
    row.begin(6)
    assert link.commands[-1].new_token_ids == (5, 6)


async def test_rows_that_ended_are_freed(row, link) -> None:
    row.begin(4)
    row.drafting.begin(DraftingStep(BatchStep((), (1,)), K, 0.0))
    assert link.commands[-1] == CloseSequence(7)
    assert link.mailbox is None


async def test_a_step_that_begins_anew_frees_every_row_before_it(row, link) -> None:
    row.begin(4)
    new = RowStep(2, 5, (*PROMPT, 4, 5), len(PROMPT), 1)
    row.drafting.begin(DraftingStep(BatchStep((new,), (), begins_anew=True), K, 0.0))
    assert [type(command) for command in link.commands[2:]] == [CloseSequence, OpenSequence, Propose]
    assert link.commands[-2].output_token_ids == (4, 5)


async def test_a_probe_in_time_is_a_success_and_its_draft_serves_the_next_step(row, link, counters) -> None:
    row.begin(4)
    answer(row, link)
    step = row.begin(5, deadline_s=60.0, is_probe=True)
    assert not step.is_complete
    answer(row, link, 6, 7)
    assert step.is_complete
    assert (link.num_successes, link.failures) == (1, [])
    assert row.begin(6).wait() == [[7]]
    assert counters.num_missed_deadlines == 0


async def test_a_probe_that_is_not_answered_is_a_failure_and_no_missed_deadline(row, link, counters) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, is_probe=True)
    row.begin(6)
    assert (counters.num_missed_deadlines, len(link.failures)) == (0, 1)


async def test_a_probe_under_way_is_not_overtaken_by_another(row, link) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, deadline_s=60.0, is_probe=True)
    num_commands = len(link.commands)
    assert row.begin(6, deadline_s=60.0).num_missing == 0
    assert len(link.commands) == num_commands
    assert link.failures == []


async def test_a_replica_that_is_tried_again_is_not_waited_for(row, link, counters) -> None:
    row.begin(4)
    answer(row, link)
    link.is_healthy, link.is_on_trial = False, True
    step = row.begin(5, deadline_s=60.0)
    assert step.num_missing == 0
    answer(row, link, 6)
    assert link.num_successes == 1
    row.begin(6)
    row.begin(7)
    assert (counters.num_missed_deadlines, len(link.failures)) == (0, 1)


async def test_a_shadow_tells_what_would_have_been_accepted_once_that_is_certain(row, link, counters, shadows) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, deadline_s=60.0, is_shadow=True)
    answer(row, link, 6, 7, 8)
    assert row.step.wait() == [[]]
    row.begin(6, is_shadow=True)
    assert not shadows
    row.begin(7, is_shadow=True)
    row.begin(9, is_shadow=True)
    assert shadows == [(1, 3, 2)]
    assert counters.num_shadow_drafts == 1


async def test_while_a_shadow_is_being_followed_no_other_is_asked_for(row, link) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, deadline_s=60.0, is_shadow=True)
    answer(row, link, 6, 7)
    num_commands = len(link.commands)
    row.begin(6, is_shadow=True)
    assert len(link.commands) == num_commands
    row.begin(7, is_shadow=True)
    assert len(link.commands) == num_commands + 1


async def test_an_empty_shadow_is_told_as_well(row, link, shadows) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, deadline_s=60.0, is_shadow=True)
    answer(row, link)
    row.begin(6)
    assert shadows == [(1, 0, 0)]


async def test_a_shadow_that_has_come_true_so_far_serves_the_first_step_that_waits(row, link, shadows) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, deadline_s=60.0, is_shadow=True)
    answer(row, link, 6, 7, 8)
    assert row.begin(6).wait() == [[7, 8]]
    row.begin(7, 8, 9)
    assert not shadows  # it was verified, and is counted there


async def test_a_shadow_that_comes_too_late_is_no_hit_and_no_failure(row, link, shadows) -> None:
    row.begin(4)
    answer(row, link)
    row.begin(5, is_shadow=True)
    answer(row, link, 6, 7)
    row.begin(6, is_shadow=True)  # not answered before the next step
    row.begin(7, 8)
    assert (shadows, link.failures) == ([], [])


async def test_a_shadow_asks_for_nothing_ahead_and_takes_nothing_of_before(row, link, shadows) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    row.begin(5, 9, deadline_s=60.0, is_shadow=True)
    assert link.commands[-1].ahead is None
    link.mailbox.deliver(PreparedDrafts(7, 4, (5, 6), (1, 2), (9, 8), (10, 11, 12, 13)))
    answer(row, link, 10)
    row.begin(12)
    assert shadows == [(1, 1, 0)]
    assert link.commands[-1].ahead is not None


async def test_what_was_not_verified_of_a_draft_is_not_counted(row, link, counters) -> None:
    row.begin(4)
    answer(row, link, 5, 6, 7)
    row.begin(5, num_verified=1)
    assert (counters.acceptance.num_draft_tokens, counters.acceptance.num_accepted_tokens) == (1, 0)
    answer(row, link, 6, 7)
    row.begin(6, num_verified=0)
    assert counters.acceptance.num_draft_tokens == 1


async def test_what_was_not_verified_of_a_draft_was_not_rejected(row, link) -> None:
    row.begin(4)
    answer(row, link, 5, 5)
    believed = link.commands[-1].ahead.acceptance
    for _ in range(40):
        row.begin(5, 5, num_verified=1)
        answer(row, link, 5, 5)
    learned = link.commands[-1].ahead.acceptance
    assert learned[0] > 0.95
    assert learned[1] >= believed[1]


@pytest.mark.parametrize(("is_told_late", "num_samples"), [(False, 1), (True, 0)])
async def test_only_a_round_that_ends_now_tells_how_long_rounds_take(
    row, link, monkeypatch, is_told_late: bool, num_samples: int
) -> None:
    samples: list[float] = []
    monkeypatch.setattr(AheadPolicy, "add_round", lambda self, elapsed_s, *, is_ahead: samples.append(elapsed_s))
    monkeypatch.setattr(AheadPolicy, "budget", lambda self, *_: Budget(K, is_sample=True))
    row.begin(4)
    answer(row, link, 5, 6)
    row.step.wait()
    untold: tuple[ToldBatch, ...] = ()
    if is_told_late:
        row.length += 1
        untold = (ToldBatch(BatchStep((RowStep(1, row.length, (5,), 0, 1),), ()), {}),)
    row.begin(9, untold=untold)
    assert len(samples) == num_samples


async def test_steps_that_are_told_late_are_taken_in_one_after_another(row, link, counters) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    row.step.wait()
    rows = (RowStep(1, 6, (5, 9), 0, 2), RowStep(2, 4, (*PROMPT, 7), len(PROMPT), 1))
    first = ToldBatch(BatchStep(rows, ()), {})
    step = DraftingStep(BatchStep((RowStep(2, 5, (8,), 0, 1),), (1,)), K, 0.0, untold=(first,))
    row.drafting.begin(step)
    assert (counters.acceptance.num_draft_tokens, counters.acceptance.num_accepted_tokens) == (2, 1)
    closed, opened, asked = link.commands[-3:]
    assert closed == CloseSequence(7)
    assert isinstance(opened, OpenSequence)
    assert (opened.prompt_token_ids, opened.output_token_ids) == (PROMPT, (7, 8))
    assert isinstance(asked, Propose)
    assert asked.base_length == 5
