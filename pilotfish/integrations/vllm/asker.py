"""What happens between two steps of vLLM: rows are followed, drafts asked for and waited for, and steps timed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pilotfish.integrations.vllm.background import BackgroundDrafting
from pilotfish.integrations.vllm.batch_rows import BatchRows, BatchStep, TokenIds
from pilotfish.integrations.vllm.pace import Pace
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.tensor_parallel import Drafts

# vLLM gives handlers and a level to loggers of this name alone.
_log = logging.getLogger("vllm.pilotfish")


class Asker:
    """On vLLM's thread; of the one rank that asks."""

    def __init__(self, background: BackgroundDrafting, pace: Pace, num_draft_tokens: int) -> None:
        self._background = background
        self._pace = pace
        self._num_draft_tokens = num_draft_tokens
        self._rows = BatchRows()
        self._num_drafted = 0
        """Draft tokens that vLLM verifies in the step that runs now."""
        self._num_rows = 0
        self._was_asked = False
        self._wait_s = 0.0
        self._returned_s = 0.0

    def drafts(
        self, sampled_token_ids: list[list[int]], num_tokens: Sequence[int] | TokenIds, token_ids: TokenIds
    ) -> Drafts:
        """See RemoteProposer.propose."""
        now_s = time.perf_counter()
        try:
            drafts = self._ask(sampled_token_ids, num_tokens, token_ids, now_s)
        except Exception:
            # An error here would end vLLM's engine, and with it every request.
            self._note_fault()
            drafts = [[] for _ in sampled_token_ids]
        self._num_drafted = sum(map(len, drafts))
        self._returned_s = time.perf_counter()
        self._wait_s = self._returned_s - now_s
        return drafts

    def _ask(
        self, sampled: list[list[int]], num_tokens: Sequence[int] | TokenIds, token_ids: TokenIds, now_s: float
    ) -> Drafts:
        background = self._background
        if not background.is_ready:
            self._num_rows = 0
            return [[] for _ in sampled]
        if background.has_lost_rows:
            background.has_lost_rows = False
            self._rows.forget()
        batch = self._rows.update(sampled, num_tokens, token_ids)
        self._learn(batch, now_s)
        num_rows = len(batch.rows)
        self._was_asked = background.is_usable and self._pace.wants_drafts(num_rows)
        self._background.counters.num_pauses = self._pace.num_pauses
        num_draft_tokens = self._num_draft_tokens if self._was_asked else 0
        step = DraftingStep(batch, num_draft_tokens, self._pace.deadline_s(num_rows))
        background.begin(step)
        return step.wait() if self._was_asked else [[] for _ in sampled]

    def _learn(self, batch: BatchStep, now_s: float) -> None:
        """What the step took that has just ended, if it is one of many like it."""
        num_rows, before = len(batch.rows), self._num_rows
        self._num_rows = num_rows
        if num_rows == before and batch.is_pure_decode:
            self._pace.add_step(
                num_rows,
                now_s - self._returned_s,
                sum(row.num_sampled_tokens for row in batch.rows),
                num_draft_tokens=self._num_drafted,
                wait_s=self._wait_s,
                was_asked=self._was_asked,
            )

    def _note_fault(self) -> None:
        counters = self._background.counters
        counters.num_faults += 1
        if counters.num_faults == 1:
            _log.exception("Pilotfish's proposer failed: vLLM decodes such steps without drafts; told once")
        self._rows.forget()
        self._num_rows = 0
