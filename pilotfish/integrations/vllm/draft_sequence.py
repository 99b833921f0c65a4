"""A row of vLLM's batch and its drafts: what a replica is told and asked, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Span

from orchestrator.drafting.ahead_drafts import AheadDrafts
from orchestrator.drafting.ahead_policy import AheadPolicy
from orchestrator.drafting.sequence_pool import DraftPool, SequencePool
from orchestrator.replicas.remote_sequence import Link
from pilotfish.errors import PilotfishError
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.messages import CloseSequence, Event, OpenSequence, PreparedDrafts, Proposal, Propose, SequenceError
from pilotfish.telemetry.tracing import traceparent
from pilotfish.types import SamplingParams, SequenceErrorCode

_OPENING_PATIENCE_S = 10.0
"""For the first answer: the drafter may have a long prompt to read, and others' before it."""
_MAX_OUTPUT_TOKENS = 2**31 - 1
"""vLLM knows when to stop."""

GREEDY: Final = SamplingParams(temperature=0.0, max_tokens=_MAX_OUTPUT_TOKENS)
"""vLLM takes drafts as certain, without probabilities: it accepts each with the chance that its own model gives it, so
the likeliest token is the best draft at any temperature."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A Propose on all committed tokens that was not answered yet."""

    step: DraftingStep
    slot: int
    sent_s: float
    """By the event loop's clock."""
    is_awaited: bool


class DraftSequence:
    """On one replica at a time, or on none. Event loop only. A Mailbox of its link."""

    def __init__(
        self,
        row: CommittedRow,
        pool: DraftPool,
        target: TargetModel,
        policy: AheadPolicy,
        counters: ProposerCounters,
        span: Span,
    ) -> None:
        """span: the row's life, which ends with it."""
        self.row = row
        self._pool = SequencePool(pool)
        self._target = target
        self._counters = counters
        self._span = span
        self._loop = asyncio.get_running_loop()
        self._ahead = AheadDrafts(policy)
        self._arrived: list[PreparedDrafts] = []
        self._link: Link | None = None
        self._sequence_id = 0
        self._told_length = 0
        """Committed tokens that the replica knows of."""
        self._opened_s = 0.0
        self._has_answered = False
        self._question: _Question | None = None

    @property
    def is_open(self) -> bool:
        """Whether a replica has it."""
        return self._link is not None

    def commit(self, row: RowStep) -> None:
        """What vLLM's step added. A draft that has not come by now has missed its deadline."""
        question, self._question = self._question, None
        if self._link is not None and question is not None:
            if question.is_awaited:
                self._link.report_failure("drafts miss their deadline")
            elif not self._has_answered and self._loop.time() - self._opened_s > _OPENING_PATIENCE_S:
                self.fail_replica("a sequence is not answered")
        self.row.commit(row)
        self._ahead.learn(self.row, self._loop.time())

    def open(self) -> bool:
        """With every committed token, unless it is open where it is served; False: no replica takes it.

        Raises UnavailableError.
        """
        if self._link is not None and self._link.serves(self._sequence_id):
            return True
        self.leave()
        self._link = self._pool.pick()
        if self._link is None:
            return False
        self._counters.num_sequences += 1
        self._sequence_id = self._link.attach(self)
        self._opened_s = self._loop.time()
        self._told_length = self.row.length
        self._link.send(
            OpenSequence(
                sequence_id=self._sequence_id,
                prompt_token_ids=self.row.prompt_token_ids,
                output_token_ids=self.row.output_token_ids,
                sampling=GREEDY,
                traceparent=traceparent(self._span),
            )
        )
        return True

    def draft(self, step: DraftingStep, slot: int) -> bool:
        """Answer the step with what was drafted ahead, or ask the replica; whether its answer is worth waiting for.

        The first one is not: the drafter reads the prompt before it. Raises UnavailableError or
        ResourceExhaustedError.
        """
        assert self._link is not None
        arrived, self._arrived = self._arrived, []
        prepared = self._ahead.take(arrived, self.row, self._target.num_draft_tokens)
        if prepared is not None and self._is_sound(prepared):
            self._propose(self._link, len(prepared.draft_token_ids), is_prepared=True)
            self._give(step, slot, prepared.draft_token_ids)
            self._link.report_success()
            return False
        self._propose(self._link, self._target.num_draft_tokens)
        self._question = _Question(step, slot, self._loop.time(), is_awaited=self._has_answered)
        return self._has_answered

    def fail_replica(self, reason: str) -> None:
        """It served the row badly: the next step looks for one that takes it."""
        if self._link is not None:
            self._link.report_failure(reason)
        self.leave()

    def leave(self) -> None:
        """Free what the replica holds for it. Idempotent; never raises."""
        if self._question is not None:
            self._question.step.answer(self._question.slot, ())
        self._question, self._has_answered = None, False
        self._arrived.clear()
        self._ahead.forget()
        link, self._link = self._link, None
        if link is None:
            return
        if link.is_connected:
            # A stream that is going down releases the sequence as well.
            with contextlib.suppress(PilotfishError):
                link.send(CloseSequence(self._sequence_id))
        link.detach(self._sequence_id)

    def close(self) -> None:
        """The row has ended: called once."""
        self.leave()
        self._span.set_attributes(
            {
                "gen_ai.usage.output_tokens": len(self.row.output_token_ids),
                "pilotfish.speculation.num_rounds": self.row.acceptance.num_rounds,
                "pilotfish.speculation.num_draft_tokens": self.row.acceptance.num_draft_tokens,
                "pilotfish.speculation.num_accepted_tokens": self.row.acceptance.num_accepted_tokens,
            }
        )
        self._span.end(time.time_ns())

    def deliver(self, event: Event) -> None:
        if isinstance(event, Proposal):
            # Whatever it stands on: it has read the prompt.
            self._has_answered = True
            if event.base_length == self.row.length:
                self._settle(event)
        elif isinstance(event, PreparedDrafts):
            self._keep_or_take(event)
        elif isinstance(event, SequenceError):
            self._take_error(event)

    def fail(self, error: PilotfishError) -> None:  # noqa: ARG002
        self.leave()

    def fail_if_overdue(self) -> None:
        """Deadlines are those of steps, which come far more often."""

    def _keep_or_take(self, prepared: PreparedDrafts) -> None:
        if self._question is None:
            self._arrived.append(prepared)
            return
        draft = self._ahead.take_late(prepared, self.row, self._target.num_draft_tokens)
        if draft is not None:
            # The replica answers as well, which nobody waits for any more.
            self._settle(draft)

    def _settle(self, draft: Proposal) -> None:
        """The question is answered, in time or not."""
        question, link = self._question, self._link
        if question is None or link is None:
            return
        if not self._is_sound(draft):
            self.fail_replica("its drafts are none that a working drafter makes")
            return
        self._question = None
        self._ahead.add_ask(self._loop.time() - question.sent_s)
        is_in_time = self._give(question.step, question.slot, draft.draft_token_ids)
        if not question.is_awaited:
            return
        if is_in_time:
            link.report_success()
        else:
            link.report_failure("drafts miss their deadline")

    def _take_error(self, error: SequenceError) -> None:
        link = self._link
        is_overtaken = self._question is None or error.base_length < self.row.length
        if link is None or (error.code is SequenceErrorCode.STALE and is_overtaken):
            return
        if self._pool.note(error, link, self.row.length + self._target.num_draft_tokens):
            self._span.set_attribute("pilotfish.refusal", error.message)
        self.leave()  # the next step opens it again, with all committed tokens, where it is not refused

    def _propose(self, link: Link, num_tokens: int, *, is_prepared: bool = False) -> None:
        """Tell the tokens that are new, and ask for a draft on all, or for what follows the prepared one."""
        new_token_ids, self._told_length = self.row.tokens_since(self._told_length), self.row.length
        link.send(
            Propose(
                sequence_id=self._sequence_id,
                base_length=self.row.length,
                new_token_ids=new_token_ids,
                num_draft_tokens=min(num_tokens, link.limits.max_draft_tokens),
                ahead=self._ahead.request(link, self.row, num_tokens),
                is_prepared=is_prepared,
            )
        )

    def _give(self, step: DraftingStep, slot: int, token_ids: tuple[int, ...]) -> bool:
        """vLLM verifies this draft next, unless the step is over: then False."""
        is_in_time = step.answer(slot, token_ids)
        if is_in_time and token_ids:
            self.row.given = token_ids
            self._ahead.remember(self.row, token_ids, self._loop.time())
        return is_in_time

    def _is_sound(self, draft: Proposal) -> bool:
        token_ids = draft.draft_token_ids
        is_chain = not draft.parents and len(token_ids) <= self._target.num_draft_tokens
        # A token beyond its vocabulary would bring vLLM down.
        return is_chain and all(0 <= token_id < self._target.vocab_size for token_id in token_ids)
