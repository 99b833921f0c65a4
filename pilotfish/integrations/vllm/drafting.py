"""Draft sequences for all rows of vLLM's batch, on an event loop of its own: every step is one frame to a replica."""

from __future__ import annotations

import asyncio

from orchestrator.drafting.ahead_policy import AheadPolicy
from orchestrator.replicas.pool import ReplicaPool
from pilotfish.errors import PilotfishError
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.draft_sequence import DraftSequence
from pilotfish.integrations.vllm.row_trace import RowTracing
from pilotfish.integrations.vllm.step import DraftingStep, ToldBatch
from pilotfish.integrations.vllm.unused_drafts import NoteShadow

_IDLE_S = 5.0
"""vLLM does not say that a request has ended: without a step for so long they all have."""


class Drafting:
    """Made and used on one event loop."""

    def __init__(
        self,
        pool: ReplicaPool,
        policy: AheadPolicy,
        counters: ProposerCounters,
        tracing: RowTracing,
        vocab_size: int,
        *,
        note_shadow: NoteShadow,
    ) -> None:
        """vocab_size: vLLM's. note_shadow: told what became of drafts that nobody waited for."""
        self._pool = pool
        self._policy = policy
        self._counters = counters
        self._tracing = tracing
        self._vocab_size = vocab_size
        self._note_shadow = note_shadow
        self._sequences: dict[int, DraftSequence] = {}
        self._loop = asyncio.get_running_loop()
        self._last_step_s = self._loop.time()

    @property
    def is_usable(self) -> bool:
        """Whether asking may be answered: somewhere, or where a row is open, which may be to try a replica again."""
        return any(link.is_healthy for link in self._pool.links) or any(
            sequence.link is not None for sequence in self._sequences.values()
        )

    def begin(self, step: DraftingStep) -> None:
        """Take in what vLLM's step committed, answer what is at hand, and ask for the rest."""
        self._last_step_s = self._loop.time()
        for told in step.told:
            self._take_in(told, is_just_now=told is step.told[-1])
        awaited = []
        for slot, row in enumerate(step.batch.rows):
            if self._serve(step, slot, row, self._sequences[row.row_id]):
                awaited.append(slot)
        step.expect(awaited)

    def leave_if_idle(self) -> None:
        """Called now and then: frees everything on the replicas. A row that goes on is opened there again."""
        if self._loop.time() - self._last_step_s > _IDLE_S:
            for sequence in self._sequences.values():
                sequence.leave()

    def close(self) -> None:
        """Follow no row any more."""
        for row_id in tuple(self._sequences):
            self._end(row_id)

    def _take_in(self, told: ToldBatch, *, is_just_now: bool) -> None:
        if told.batch.begins_anew:
            self.close()
        for row_id in told.batch.ended_row_ids:
            self._end(row_id)
        for row in told.batch.rows:
            sequence = self._followed(row)
            sequence.note_missed()
            sequence.commit(row, told.num_verified.get(row.row_id), is_just_now=is_just_now)

    def _followed(self, row: RowStep) -> DraftSequence:
        if row.num_prompt_tokens:
            committed = CommittedRow(row.num_prompt_tokens, self._counters, self._tracing.begin())
            sequence = DraftSequence(committed, self._policy, self._counters, self._vocab_size, self._note_shadow)
            self._sequences[row.row_id] = sequence
        return self._sequences[row.row_id]

    def _serve(self, step: DraftingStep, slot: int, row: RowStep, sequence: DraftSequence) -> bool:
        """Whether an answer will come that is worth waiting for."""
        num_tokens = step.num_draft_tokens
        if num_tokens == 0:
            return False
        try:
            if sequence.link is None and not self._open(sequence):
                return False
            if not row.num_sampled_tokens:
                return False  # vLLM still reads the prompt, and the drafter with it
            if not step.is_waited_for:
                return sequence.ask(step, slot, num_tokens)
            draft = sequence.take_prepared(num_tokens)
            if draft:
                sequence.give(step, slot, draft)
                return False
            late = sequence.take_late(num_tokens)
            if late:
                sequence.give(step, slot, late)
            return sequence.ask(step, slot, num_tokens, has_draft=bool(late))
        except PilotfishError as error:
            if sequence.link is not None:
                sequence.link.report_failure(str(error))
            sequence.leave()
            return False

    def _open(self, sequence: DraftSequence) -> bool:
        link = self._pool.pick()
        if link is None:
            return False
        sequence.open(link)
        return True

    def _end(self, row_id: int) -> None:
        sequence = self._sequences.pop(row_id, None)
        if sequence is not None:
            sequence.close()
