"""What happens between two steps of vLLM: rows are followed, drafts asked for and waited for, and steps timed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pilotfish.integrations.vllm.background import BackgroundDrafting
from pilotfish.integrations.vllm.batch_rows import BatchRows, BatchStep, RowStep, TokenIds
from pilotfish.integrations.vllm.pace import Pace, StepOutcome
from pilotfish.integrations.vllm.patience import Asking, Patience
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.tensor_parallel import Drafts

# vLLM gives handlers and a level to loggers of this name alone.
_log = logging.getLogger("vllm.pilotfish")


class Asker:
    """On vLLM's thread; of the one rank that asks."""

    def __init__(self, background: BackgroundDrafting, pace: Pace) -> None:
        self._background = background
        self._pace = pace
        self._patience = Patience()
        self._rows = BatchRows()
        self._probe: DraftingStep | None = None
        """One that is not answered yet, or not known to be."""
        self._num_requested = 0
        """Draft tokens that the last call waited for, of each row."""
        self._was_vain = False
        """Whether the last call waited for drafts that did not come."""
        self._drafted: dict[int, int] = {}
        """Draft tokens of each row that vLLM verifies in the step that runs now; of all rows that it has."""
        self._called_s = 0.0
        """When vLLM called last."""

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
        self._called_s = now_s
        return drafts

    def _ask(
        self, sampled: list[list[int]], num_tokens: Sequence[int] | TokenIds, token_ids: TokenIds, now_s: float
    ) -> Drafts:
        background = self._background
        if not background.is_ready:
            self._drafted = {}
            return [[] for _ in sampled]
        if background.has_lost_rows:
            background.has_lost_rows = False
            self._rows.forget()
        batch = self._rows.update(sampled, num_tokens, token_ids)
        self._learn(batch, now_s)
        self._pace.advance(now_s, len(batch.rows))
        drafts = self._drafts_of(batch, now_s)
        background.counters.num_pauses = self._pace.num_pauses
        self._drafted = {row.row_id: len(draft) for row, draft in zip(batch.rows, drafts, strict=True)}
        return drafts

    def _drafts_of(self, batch: BatchStep, now_s: float) -> Drafts:
        """Asked for and waited for, if both are worth it."""
        asking = self._asking(now_s)
        num_rows = len(batch.rows)
        num_tokens = self._pace.num_draft_tokens(num_rows) if asking != "none" else 0
        is_waited_for = asking == "wait"
        step = DraftingStep(batch, num_tokens, self._pace.deadline_s(num_rows), is_waited_for=is_waited_for)
        self._background.begin(step)
        self._num_requested, self._was_vain = 0, False
        if num_tokens and asking == "probe":
            self._background.counters.num_probes += 1
            self._probe = step
        if not num_tokens or not is_waited_for:
            return [[] for _ in batch.rows]
        drafts = step.wait()
        self._num_requested, self._was_vain = num_tokens, step.is_missed
        if step.is_missed:
            self._pace.add_vain_wait(time.perf_counter() - now_s, num_rows)
        self._patience.add_wait(is_in_time=not step.is_missed)
        return drafts

    def _asking(self, now_s: float) -> Asking:
        """What has become of the last probe, and what that means for this step."""
        if self._probe is not None:
            is_in_time = self._probe.was_in_time(now_s)
            if is_in_time is None and not self._probe.is_complete:
                return "none"
            self._probe = None
            if is_in_time is not None:
                self._patience.add_probe(is_in_time=is_in_time)
        return self._patience.next() if self._background.is_usable else "none"

    def _learn(self, batch: BatchStep, now_s: float) -> None:
        """What the step took that has just ended, if it is one of many like it."""
        drafted = self._drafted
        is_same_batch = drafted.keys() == {row.row_id for row in batch.rows}
        if self._was_vain or not is_same_batch or not batch.is_pure_decode:
            return
        drafts = tuple((drafted[row.row_id], _num_accepted(row, drafted[row.row_id])) for row in batch.rows)
        self._pace.add_step(StepOutcome(now_s - self._called_s, self._num_requested, drafts))

    def _note_fault(self) -> None:
        counters = self._background.counters
        counters.num_faults += 1
        if counters.num_faults == 1:
            _log.exception("Pilotfish's proposer failed: vLLM decodes such steps without drafts; told once")
        self._rows.forget()
        self._drafted = {}


def _num_accepted(row: RowStep, num_drafted: int) -> int:
    """The last of the tokens that vLLM committed is its own."""
    return min(num_drafted, row.num_sampled_tokens - 1)
