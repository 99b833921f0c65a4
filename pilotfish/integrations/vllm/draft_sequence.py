"""A row of vLLM's batch and its drafts: what a replica is asked, and what becomes of its answers."""

from __future__ import annotations

import asyncio

from orchestrator.drafting.ahead_drafts import AheadDrafts
from orchestrator.drafting.ahead_policy import AheadPolicy
from orchestrator.replicas.remote_sequence import Link
from pilotfish.errors import PilotfishError
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.question import Question
from pilotfish.integrations.vllm.replica_row import ReplicaRow
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.unused_drafts import NoteShadow, UnusedDrafts
from pilotfish.messages import Event, PreparedDrafts, Proposal, SequenceError
from pilotfish.types import SequenceErrorCode

_OPENING_PATIENCE_S = 10.0
"""For the first answer: the drafter may have a long prompt to read, and others' before it."""


class DraftSequence:
    """Event loop only. A Mailbox of its link."""

    def __init__(
        self,
        row: CommittedRow,
        policy: AheadPolicy,
        counters: ProposerCounters,
        vocab_size: int,
        note_shadow: NoteShadow,
    ) -> None:
        """vocab_size: vLLM's: a token beyond it would bring vLLM down."""
        self.row = row
        self._counters = counters
        self._vocab_size = vocab_size
        self._loop = asyncio.get_running_loop()
        self._ahead = AheadDrafts(policy)
        self._arrived: list[PreparedDrafts] = []
        self._replica = ReplicaRow(row)
        self._unused = UnusedDrafts(row, counters, note_shadow)
        self._has_answered = False
        self._given_s = 0.0
        self._question: Question | None = None
        self._silent_since_s: float | None = None
        """When the first of the questions was sent that nothing has come after; None: nothing is awaited."""

    @property
    def link(self) -> Link | None:
        """Where it is open, and worth staying; None: nowhere."""
        if self._replica.link is not None and not self._replica.is_worth_staying:
            self.leave()
        return self._replica.link

    def commit(self, row: RowStep, num_verified: int | None = None, *, is_just_now: bool = True) -> None:
        """What vLLM's step added. num_verified: tokens of the last draft that it was given; None: all."""
        self._ahead.remember(self.row, self.row.given[:num_verified], self._given_s)
        self.row.commit(row, num_verified)
        self._unused.settle(row.row_id)
        self._ahead.learn(self.row, self._loop.time() if is_just_now else None)

    def open(self, link: Link) -> None:
        """On another replica, or a first one, with every committed token. Raises UnavailableError."""
        self.leave()
        self._counters.num_sequences += 1
        self._replica.open(link, self)

    def take_prepared(self, num_tokens: int) -> tuple[int, ...]:
        """What is at hand for the committed tokens; the replica is asked for what follows. Empty: nothing.

        Raises UnavailableError or ResourceExhaustedError.
        """
        arrived, self._arrived = self._arrived, []
        draft = self._ahead.take(arrived, self.row, num_tokens)
        if draft is None or not self._is_sound(draft.draft_token_ids, num_tokens):
            return ()
        self._propose(len(draft.draft_token_ids), is_prepared=True)
        return draft.draft_token_ids

    def take_late(self, num_tokens: int) -> tuple[int, ...]:
        """What is left of a draft that came too late, if vLLM has decoded its beginning by itself. Empty: nothing."""
        return self._unused.take_rest(num_tokens)

    def ask(self, step: DraftingStep, slot: int, num_tokens: int, *, has_draft: bool = False) -> bool:
        """Ask for a draft on the committed tokens; whether the step should expect the answer.

        Not the first one: the drafter reads the prompt before it. Nor where the step has_draft already, nor from a
        replica that is tried again after failures, unless nobody waits. Raises UnavailableError or
        ResourceExhaustedError.
        """
        link, now_s = self._replica.link, self._loop.time()
        assert link is not None
        if self._question is not None and self._question.is_pending(now_s):
            return False  # its time tells more than that of another one
        if self._unused.has_shadow and step.is_shadow:
            return False  # a verification would not have ended either: asked now, what it hits would count twice
        self._arrived.clear()
        self._propose(num_tokens, wants_ahead=not step.is_shadow)
        self._silent_since_s = now_s if self._silent_since_s is None else self._silent_since_s
        is_timed = self._has_answered and not has_draft
        is_waited_for = is_timed and step.is_waited_for and link.is_healthy
        self._question = Question(self.row.length, slot, step, now_s, is_timed, is_waited_for)
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
        question, link, now_s = self._question, self._replica.link, self._loop.time()
        if question is None or question.is_missed or link is None or question.is_pending(now_s):
            return
        if question.is_timed:
            self._miss(question, link)
        elif self._silent_since_s is not None and now_s - self._silent_since_s > _OPENING_PATIENCE_S:
            # Each step asks anew, so the last question is always young.
            question.is_missed, self._silent_since_s = True, None
            link.report_failure("a sequence is not answered")

    def leave(self) -> None:
        """Free what the replica holds for it. Idempotent; never raises."""
        if self._question is not None:
            self._question.step.release(self._question.slot)
        self._question, self._has_answered, self._silent_since_s = None, False, None
        self._unused.forget()
        self._arrived.clear()
        self._ahead.forget()
        self._replica.close()

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
        question, link = self._question, self._replica.link
        # Whatever it stands on: it has read the prompt.
        self._has_answered = True
        if question is None or proposal.base_length != question.base_length or link is None:
            return  # of a step that is over
        token_ids = proposal.draft_token_ids
        if proposal.parents or not self._is_sound(token_ids, question.step.num_draft_tokens):
            link.report_failure("its drafts are none that a working drafter makes")
            self.leave()
            return
        self._settle(proposal, question, link)

    def _take_prepared_drafts(self, prepared: PreparedDrafts) -> None:
        question, link = self._question, self._replica.link
        if question is not None and question.step.is_shadow:
            return  # nobody waits for it
        if question is None or link is None:
            self._arrived.append(prepared)
            return
        num_tokens = question.step.num_draft_tokens
        draft = self._ahead.take_late(prepared, self.row, num_tokens)
        if draft is not None and self._is_sound(draft.draft_token_ids, num_tokens):
            # The replica answers as well, which nobody waits for any more.
            self._settle(draft, question, link)

    def _settle(self, draft: Proposal, question: Question, link: Link) -> None:
        """The question is answered, in time or not."""
        now_s = self._loop.time()
        elapsed_s = now_s - question.sent_s
        self._ahead.add_ask(elapsed_s)
        self.row.trace.add_proposal(elapsed_s, len(draft.draft_token_ids))
        self._question = None
        is_taken = self.give(question.step, question.slot, draft.draft_token_ids)
        if not is_taken:
            self._unused.keep_late(draft)
        is_timely = question.is_timely(now_s)
        self._unused.keep_shadow(draft if question.step.is_shadow and is_timely else None)
        if not question.is_timed:
            return
        if is_taken or (not question.is_waited_for and is_timely):
            link.report_success()
        else:
            self._miss(question, link)

    def _miss(self, question: Question, link: Link) -> None:
        if not question.is_missed:
            question.is_missed = True
            self._counters.num_missed_deadlines += question.is_waited_for
            if not question.step.is_shadow:  # nobody needs one
                link.report_failure("drafts miss their deadline")

    def _take_error(self, error: SequenceError) -> None:
        link = self._replica.link
        is_overtaken = self._question is None or error.base_length < self.row.length
        if link is None or (error.code is SequenceErrorCode.STALE and is_overtaken):
            return
        if error.code is SequenceErrorCode.RESOURCE_EXHAUSTED:
            # Those who have a place there are served well.
            link.report_full()
        elif error.code is SequenceErrorCode.UNAVAILABLE:
            link.report_draining()
        elif error.code is not SequenceErrorCode.UNKNOWN_SEQUENCE:
            link.report_failure(error.message)
        self.leave()  # the next step opens it again, with all committed tokens

    def _propose(self, num_tokens: int, *, is_prepared: bool = False, wants_ahead: bool = True) -> None:
        link = self._replica.link
        assert link is not None
        if not wants_ahead:
            self._ahead.forget()
        ahead = self._ahead.request(link, self.row, num_tokens) if wants_ahead else None
        self._replica.propose(num_tokens, ahead, is_prepared=is_prepared)

    def _is_sound(self, token_ids: tuple[int, ...], num_tokens: int) -> bool:
        return len(token_ids) <= num_tokens and all(0 <= token_id < self._vocab_size for token_id in token_ids)
