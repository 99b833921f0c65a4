"""A row of vLLM's batch on a draft replica: what it was told, what it was asked, and what it has said."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from orchestrator.drafting.ahead_drafts import AheadDrafts
from orchestrator.drafting.ahead_policy import AheadPolicy
from orchestrator.replicas.remote_sequence import Link
from pilotfish.errors import PilotfishError
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.messages import CloseSequence, Event, OpenSequence, PreparedDrafts, Proposal, Propose, SequenceError
from pilotfish.types import SamplingParams, SequenceErrorCode

_OPENING_PATIENCE_S = 10.0
"""For the first answer: the drafter may have a long prompt to read, and others' before it."""
_MAX_OUTPUT_TOKENS = 2**31 - 1
"""vLLM knows when to stop."""

GREEDY: Final = SamplingParams(temperature=0.0, max_tokens=_MAX_OUTPUT_TOKENS)
"""vLLM takes drafts as certain, without probabilities: it accepts each with the chance that its own model gives it, so
the likeliest token is the best draft at any temperature."""


@dataclass(slots=True)
class _Question:
    """A Propose that was not answered yet."""

    base_length: int
    slot: int
    step: DraftingStep
    sent_s: float
    is_timed: bool
    """Whether the answer tells how fast the replica is: the first one does not, as the prompt is read before it."""
    is_waited_for: bool
    is_missed: bool = False


class DraftSequence:
    """Event loop only. A Mailbox of its link."""

    def __init__(self, row: CommittedRow, policy: AheadPolicy, counters: ProposerCounters, vocab_size: int) -> None:
        """vocab_size: vLLM's: a token beyond it would bring vLLM down."""
        self.row = row
        self._counters = counters
        self._vocab_size = vocab_size
        self._loop = asyncio.get_running_loop()
        self._ahead = AheadDrafts(policy)
        self._arrived: list[PreparedDrafts] = []
        self._link: Link | None = None
        self._sequence_id = 0
        self._told_length = 0
        self._has_answered = False
        self._given_s = 0.0
        self._question: _Question | None = None
        self._silent_since_s: float | None = None
        """When the first of the questions was sent that nothing has come after; None: nothing is awaited."""
        self._late: Proposal | None = None
        self._shadow: Proposal | None = None
        """A draft that nobody waited for: the tokens to come will say what it was worth."""

    @property
    def link(self) -> Link | None:
        """Where it is open, and worth staying; None: nowhere."""
        if self._link is not None and not self._link.serves(self._sequence_id):
            self.leave()
        return self._link

    def commit(self, row: RowStep, num_verified: int | None = None, *, is_just_now: bool = True) -> None:
        """What vLLM's step added. num_verified: tokens of the last draft that it was given; None: all."""
        self._ahead.remember(self.row, self.row.given[:num_verified], self._given_s)
        self.row.commit(row, num_verified)
        self._settle_shadow(row.row_id)
        self._ahead.learn(self.row, self._loop.time() if is_just_now else None)

    def open(self, link: Link) -> None:
        """On another replica, or a first one, with every committed token. Raises UnavailableError."""
        self.leave()
        self._link = link
        self._sequence_id = link.attach(self)
        self._counters.num_sequences += 1
        link.send(
            OpenSequence(
                sequence_id=self._sequence_id,
                prompt_token_ids=self.row.prompt_token_ids,
                output_token_ids=self.row.output_token_ids,
                sampling=GREEDY,
                traceparent=self.row.trace.traceparent,
            )
        )
        self._told_length = self.row.length

    def take_prepared(self, num_tokens: int) -> tuple[int, ...]:
        """What is at hand for the committed tokens; the replica is asked for what follows. Empty: nothing.

        Raises UnavailableError or ResourceExhaustedError.
        """
        arrived, self._arrived = self._arrived, []
        draft = self._ahead.take(arrived, self.row, num_tokens)
        if draft is None or not self._is_sound(draft.draft_token_ids, num_tokens):
            return ()
        self._send_propose(len(draft.draft_token_ids), is_prepared=True)
        return draft.draft_token_ids

    def take_late(self, num_tokens: int) -> tuple[int, ...]:
        """What is left of a draft that came too late, if vLLM has decoded its beginning by itself. Empty: nothing."""
        late, self._late, self._shadow = self._late, None, None
        rest = () if late is None else self.row.rest_of(late.base_length, late.draft_token_ids)[:num_tokens]
        self._counters.num_late_drafts += bool(rest)
        return rest

    def ask(self, step: DraftingStep, slot: int, num_tokens: int, *, has_draft: bool = False) -> bool:
        """Ask for a draft on the committed tokens; whether the step should expect the answer.

        Not the first one: the drafter reads the prompt before it. Nor where the step has_draft already, nor from a
        replica that is tried again after failures, unless nobody waits. Raises UnavailableError or
        ResourceExhaustedError.
        """
        assert self._link is not None
        if self._question is not None and self._is_pending(self._question):
            return False  # its time tells more than that of another one
        if self._shadow is not None and step.is_shadow:
            return False  # a verification would not have ended either: asked now, what it hits would count twice
        self._arrived.clear()
        self._send_propose(num_tokens, wants_ahead=not step.is_shadow)
        now = self._loop.time()
        self._silent_since_s = now if self._silent_since_s is None else self._silent_since_s
        is_timed = self._has_answered and not has_draft
        is_waited_for = is_timed and step.is_waited_for and self._link.is_healthy
        self._question = _Question(self.row.length, slot, step, now, is_timed, is_waited_for)
        return is_timed and (is_waited_for or not step.is_waited_for)

    def give(self, step: DraftingStep, slot: int, token_ids: tuple[int, ...]) -> bool:
        """vLLM verifies this draft next, unless the step is over: then False."""
        is_in_time = step.answer(slot, token_ids)
        if is_in_time and token_ids:
            self.row.give(token_ids)
            self._given_s = self._loop.time()
        return is_in_time

    def note_missed(self) -> None:
        """vLLM's next step is here: what was not answered has missed its deadline."""
        question = self._question
        if question is None or question.is_missed or self._link is None or self._is_pending(question):
            return
        if question.is_timed:
            self._miss(question, self._link)
        elif self._silent_since_s is not None and self._loop.time() - self._silent_since_s > _OPENING_PATIENCE_S:
            # Each step asks anew, so the last question is always young.
            question.is_missed, self._silent_since_s = True, None
            self._link.report_failure("a sequence is not answered")

    def _is_pending(self, question: _Question) -> bool:
        """Whether it may still be answered within the deadline that it would have, were it waited for."""
        elapsed_s = self._loop.time() - question.sent_s
        return question.is_timed and not question.is_waited_for and elapsed_s <= question.step.deadline_s

    def _miss(self, question: _Question, link: Link) -> None:
        if not question.is_missed:
            question.is_missed = True
            self._counters.num_missed_deadlines += question.is_waited_for
            if not question.step.is_shadow:  # nobody needs one
                link.report_failure("drafts miss their deadline")

    def leave(self) -> None:
        """Free what the replica holds for it. Idempotent; never raises."""
        link, self._link = self._link, None
        if self._question is not None:
            self._question.step.release(self._question.slot)
        self._question, self._has_answered, self._silent_since_s = None, False, None
        self._late = self._shadow = None
        self._arrived.clear()
        self._ahead.forget()
        if link is None:
            return
        if link.is_connected:
            # A stream that is going down releases the sequence as well.
            with contextlib.suppress(PilotfishError):
                link.send(CloseSequence(self._sequence_id))
        link.detach(self._sequence_id)

    def close(self) -> None:
        """The row has ended. Idempotent."""
        self.leave()
        self.row.trace.end(len(self.row.output_token_ids))

    # What the link calls.

    def deliver(self, event: Event) -> None:
        self._silent_since_s = None
        if isinstance(event, Proposal):
            self._take_proposal(event)
        elif isinstance(event, PreparedDrafts):
            self._take_prepared_drafts(event)
        elif isinstance(event, SequenceError):
            self._take_error(event)

    def fail(self, error: PilotfishError) -> None:  # noqa: ARG002
        self.leave()

    def fail_if_overdue(self) -> None:
        """Deadlines are those of steps, which come far more often."""

    # Answers.

    def _take_proposal(self, proposal: Proposal) -> None:
        question = self._question
        # Whatever it stands on: it has read the prompt.
        self._has_answered = True
        if question is None or proposal.base_length != question.base_length or self._link is None:
            return  # of a step that is over
        token_ids = proposal.draft_token_ids
        if proposal.parents or not self._is_sound(token_ids, question.step.num_draft_tokens):
            self._link.report_failure("its drafts are none that a working drafter makes")
            self.leave()
            return
        self._settle(proposal, question, self._link)

    def _take_prepared_drafts(self, prepared: PreparedDrafts) -> None:
        question = self._question
        if question is not None and question.step.is_shadow:
            return  # nobody waits for it
        if question is None or self._link is None:
            self._arrived.append(prepared)
            return
        num_tokens = question.step.num_draft_tokens
        draft = self._ahead.take_late(prepared, self.row, num_tokens)
        if draft is not None and self._is_sound(draft.draft_token_ids, num_tokens):
            # The replica answers as well, which nobody waits for any more.
            self._settle(draft, question, self._link)

    def _settle(self, draft: Proposal, question: _Question, link: Link) -> None:
        """The question is answered, in time or not."""
        elapsed_s = self._loop.time() - question.sent_s
        self._ahead.add_ask(elapsed_s)
        self.row.trace.add_proposal(elapsed_s, len(draft.draft_token_ids))
        self._question = None
        is_taken = self.give(question.step, question.slot, draft.draft_token_ids)
        if not is_taken:
            self._late = draft
        is_timely = elapsed_s <= question.step.deadline_s
        self._shadow = draft if question.step.is_shadow and is_timely else None
        if not question.is_timed:
            return
        if is_taken or (not question.is_waited_for and is_timely):
            link.report_success()
        else:
            self._miss(question, link)

    def _settle_shadow(self, row_id: int) -> None:
        """Whether the tokens that have come say what a draft was worth that nobody waited for."""
        shadow = self._shadow
        num_accepted = None if shadow is None else self.row.fate_of(shadow.base_length, shadow.draft_token_ids)
        if shadow is not None and num_accepted is not None:
            self._shadow = None
            self._counters.num_shadow_drafts += 1
            self._counters.shadows.append((row_id, len(shadow.draft_token_ids), num_accepted))

    def _take_error(self, error: SequenceError) -> None:
        if self._link is None or (
            error.code is SequenceErrorCode.STALE and (self._question is None or error.base_length < self.row.length)
        ):
            return
        if error.code is SequenceErrorCode.RESOURCE_EXHAUSTED:
            # Those who have a place there are served well.
            self._link.report_full()
        elif error.code is SequenceErrorCode.UNAVAILABLE:
            self._link.report_draining()
        elif error.code is not SequenceErrorCode.UNKNOWN_SEQUENCE:
            self._link.report_failure(error.message)
        self.leave()  # the next step opens it again, with all committed tokens

    def _send_propose(self, num_tokens: int, *, is_prepared: bool = False, wants_ahead: bool = True) -> None:
        assert self._link is not None
        if not wants_ahead:
            self._ahead.forget()
        self._link.send(
            Propose(
                sequence_id=self._sequence_id,
                base_length=self.row.length,
                new_token_ids=self.row.tokens_since(self._told_length),
                num_draft_tokens=min(num_tokens, self._link.limits.max_draft_tokens),
                ahead=self._ahead.request(self._link, self.row, num_tokens) if wants_ahead else None,
                is_prepared=is_prepared,
            )
        )
        self._told_length = self.row.length

    def _is_sound(self, token_ids: tuple[int, ...], num_tokens: int) -> bool:
        return len(token_ids) <= num_tokens and all(0 <= token_id < self._vocab_size for token_id in token_ids)
