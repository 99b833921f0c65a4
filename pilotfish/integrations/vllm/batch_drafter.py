"""Drafters of all rows of vLLM's batch, on an event loop of its own: every step is one frame to a replica."""

from __future__ import annotations

import asyncio
import time

from orchestrator.replicas.pool import ReplicaPool
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.row_drafter import RowDrafter
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.telemetry.tracing import Tracing, traceparent

_IDLE_S = 5.0
"""Time without a step after which all requests count as ended: vLLM does not say when one ends."""


class BatchDrafter:
    """Drafts for a batch's rows. Made and used on one event loop."""

    def __init__(
        self,
        pool: ReplicaPool,
        target: TargetModel,
        policy: PredraftPolicy,
        counters: ProposerCounters,
        tracing: Tracing,
    ) -> None:
        self._pool = pool
        self._target = target
        self._policy = policy
        self._counters = counters
        self._tracing = tracing
        self._drafters: dict[int, RowDrafter] = {}
        self._loop = asyncio.get_running_loop()
        self._last_step_s = self._loop.time()

    @property
    def is_usable(self) -> bool:
        """Whether asking may be answered: somewhere, or where a row is open, which may be to try a replica again."""
        return any(link.is_healthy for link in self._pool.links) or any(
            drafter.is_open for drafter in self._drafters.values()
        )

    def begin(self, step: DraftingStep) -> None:
        """Take in what vLLM's step committed, answer what is at hand, and ask for the rest."""
        self._last_step_s = self._loop.time()
        for row_id in self._drafters.keys() - step.batch.followed_row_ids:
            self._drafters.pop(row_id).close()
        for row in step.batch.rows:
            if row.num_prompt_tokens:
                self._drafters[row.row_id] = self._begun(row)
            if row.row_id in self._drafters:  # not a row of before a fault
                self._drafters[row.row_id].commit(row)
        step.expect([slot for slot, row in enumerate(step.batch.rows) if self._asks(step, slot, row)])

    def leave_if_idle(self) -> None:
        """Called now and then: frees everything on the replicas. A row that goes on is opened there again."""
        if self._loop.time() - self._last_step_s > _IDLE_S:
            for drafter in self._drafters.values():
                drafter.leave()

    def close(self) -> None:
        """Follow no row any more."""
        while self._drafters:
            self._drafters.popitem()[1].close()

    def _begun(self, row: RowStep) -> RowDrafter:
        span = self._tracing.begin("speculation", time.time_ns())
        committed = CommittedRow(row.num_prompt_tokens, self._counters, traceparent(span))
        return RowDrafter(committed, self._pool, self._target, self._policy, self._counters, span)

    def _asks(self, step: DraftingStep, slot: int, row: RowStep) -> bool:
        """Whether an answer will come that is worth waiting for."""
        drafter = self._drafters.get(row.row_id)
        if drafter is None:
            return False
        drafter.prepare()  # while vLLM still reads the prompt, the drafter reads it, too
        return row.num_sampled_tokens > 0 and drafter.draft(step, slot)
