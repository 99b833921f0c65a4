"""A row of vLLM's batch and its drafts: each step asks for a draft, which comes in time for it or not at all."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Span

from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.rounds.commands import Command, Event, Open, Woken
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.drafter_clients.sequence_pool import DraftReplicas
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.target_model import TargetModel

_MAX_UNREAD: Final = 512
"""Unread messages of one loop's turn; more mean that the replica is broken."""
_STEP_ENDS: Final = Woken(math.inf, "deadline")
"""The end of vLLM's step, which is the deadline of its drafts."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a draft goes."""

    step: DraftingStep
    slot: int


class RowDrafter:
    """Drafts for one row, on one replica at a time or on none. Event loop only."""

    def __init__(
        self,
        row: CommittedRow,
        pool: DraftReplicas,
        target: TargetModel,
        policy: PredraftPolicy,
        counters: ProposerCounters,
        span: Span,
    ) -> None:
        """span: the row's life, which ends with it."""
        self.row = row
        self._target = target
        self._counters = counters
        self._span = span
        self._out: list[Command] = []
        self._drafter = RemoteDrafter(
            pool,
            lambda _: math.inf,
            self._out,
            predraft=policy,
            vocab_size=target.vocab_size,  # a token beyond it would bring vLLM down
        )
        self._exchange = ReplicaExchange(None, acquire_timeout_s=0, max_unread=_MAX_UNREAD, on_event=self._hear)
        self._place: _Place | None = None
        """The place of the draft that was asked for and has not come."""

    @property
    def is_open(self) -> bool:
        """Whether a replica has it."""
        return self._drafter.peer is not None

    def commit(self, row: RowStep) -> None:
        """What vLLM's step added. A draft that has not come by now has missed its deadline."""
        self._hear(_STEP_ENDS)
        self._place = None
        self.row.commit(row)

    def prepare(self) -> None:
        """Have a replica read the row, unless one has."""
        self._drafter.prepare(self.row, time.monotonic())
        self._flush()

    def draft(self, step: DraftingStep, slot: int) -> bool:
        """Answer the step with what was drafted ahead, or ask a replica; whether its answer is worth waiting for.

        The first one is not: the drafter reads the prompt before it.
        """
        self._place = _Place(step, slot)
        draft = self._drafter.ask(self.row, self._target.num_draft_tokens, time.monotonic())
        if draft is not None:
            self._give(draft)
        self._flush()
        return self._place is not None and self._drafter.peer is not None and self._drafter.reading.is_over

    def leave(self) -> None:
        """Free what the replica holds for it. Idempotent; never raises."""
        self._give(Draft())
        self._drafter.close()
        self._flush()

    def close(self) -> None:
        """The row has ended: called once."""
        self.leave()
        self._exchange.close()
        self._span.set_attributes(
            {
                "gen_ai.usage.output_tokens": len(self.row.output_token_ids),
                "pilotfish.speculation.num_rounds": self.row.acceptance.num_rounds,
                "pilotfish.speculation.num_draft_tokens": self.row.acceptance.num_draft_tokens,
                "pilotfish.speculation.num_accepted_tokens": self.row.acceptance.num_accepted_tokens,
            }
        )
        self._span.end(time.time_ns())

    def _hear(self, event: Event) -> None:
        now_s = time.monotonic()
        if self._place is not None and self._place.step.is_over:
            self._drafter.hear(_STEP_ENDS, self.row, now_s)  # what comes now comes too late
            self._place = None
        draft = self._drafter.hear(event, self.row, now_s)
        if draft is not None:
            self._give(draft)
        self._flush()

    def _give(self, draft: Draft) -> None:
        """vLLM verifies this draft next, unless the step is over."""
        place, self._place = self._place, None
        token_ids = () if draft.parents else draft.token_ids  # vLLM asked for a chain
        if place is not None and place.step.answer(place.slot, token_ids):
            self.row.given = token_ids

    def _flush(self) -> None:
        while self._out:
            commands = self._out[:]
            self._out.clear()
            self._counters.num_sequences += sum(isinstance(command, Open) for command in commands)
            self._exchange.run(commands)
