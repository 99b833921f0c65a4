"""What happens between two steps of vLLM: rows are followed, drafts asked for and waited for, and steps timed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pilotfish.integrations.vllm.background import BackgroundDrafting
from pilotfish.integrations.vllm.batch_rows import BatchRows, BatchStep, RowStep, TokenIds
from pilotfish.integrations.vllm.draft_cut import Answer, DraftCut
from pilotfish.integrations.vllm.pace import Pace, StepOutcome
from pilotfish.integrations.vllm.patience import Asking, Patience
from pilotfish.integrations.vllm.step import DraftingStep, ToldBatch
from pilotfish.integrations.vllm.tensor_parallel import Drafts
from pilotfish.speculation.common_prefix import num_common_tokens

# vLLM gives handlers and a level to loggers of this name alone.
_log = logging.getLogger("vllm.pilotfish")

_MAX_UNTOLD_STEPS, _MAX_UNTOLD_S = 32, 1.0
"""The drafter takes rows that it hears nothing of for ended."""


class Asker:
    """On vLLM's thread; of the one rank that asks."""

    def __init__(self, background: BackgroundDrafting, pace: Pace) -> None:
        self._background = background
        self._pace = pace
        self._cut = DraftCut(pace.max_tokens)
        self._patience = Patience()
        self._rows = BatchRows()
        self._probe: DraftingStep | None = None
        """One that is not answered yet, or not known to be."""
        self._num_requested = 0
        """Draft tokens that the last call waited for, of each row."""
        self._was_vain = False
        """Whether the last call waited for drafts that did not come."""
        self._is_shadow = False
        """Whether the last call asked only to know what that would yield."""
        self._untold: list[ToldBatch] = []
        """Steps that the drafter's thread was not told of yet."""
        self._untold_since_s = 0.0
        """When the first of them ended."""
        self._drafted: dict[int, int] = {}
        """Draft tokens of each row that vLLM verifies in the step that runs now; of all rows that it has."""
        self._answers: dict[int, tuple[int, ...]] = {}
        """The drafts that these are beginnings of; of rows that were asked for."""
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
            self._drafted, self._answers = {}, {}
            return [[] for _ in sampled]
        if background.has_lost_rows:
            background.has_lost_rows = False
            self._rows.forget()
            self._untold.clear()
        batch = self._rows.update(sampled, num_tokens, token_ids)
        self._learn(batch, now_s)
        self._pace.advance(now_s, len(batch.rows))
        drafts = self._drafts_of(batch, now_s)
        background.counters.num_pauses = self._pace.num_pauses
        self._drafted = {row.row_id: len(draft) for row, draft in zip(batch.rows, drafts, strict=True)}
        return drafts

    def _drafts_of(self, batch: BatchStep, now_s: float) -> Drafts:
        """Asked for and waited for, if both are worth it."""
        self._num_requested, self._was_vain, self._answers = 0, False, {}
        asking = self._asking(now_s)
        num_rows = len(batch.rows)
        num_tokens = self._pace.num_draft_tokens(num_rows) if asking != "none" else 0
        self._is_shadow = asking == "wait" and not num_tokens and self._pace.wants_shadow(num_rows)
        is_waited_for = asking == "wait" and not self._is_shadow
        num_tokens = self._pace.max_tokens if self._is_shadow else num_tokens
        if asking == "wait" and not num_tokens and self._may_tell_later(now_s):
            self._untold.append(ToldBatch(batch, self._drafted))
            return [[] for _ in batch.rows]
        step = DraftingStep(
            batch,
            num_tokens,
            self._pace.deadline_s(num_rows),
            is_waited_for=is_waited_for,
            is_shadow=self._is_shadow,
            num_verified=self._drafted,
            untold=self._untold,
        )
        self._untold = []
        self._background.begin(step)
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
        return self._cut_short(batch, drafts)

    def _may_tell_later(self, now_s: float) -> bool:
        # To wake a thread in each step takes from vLLM's on the same cores.
        if not self._untold:
            self._untold_since_s = now_s
        return len(self._untold) < _MAX_UNTOLD_STEPS and now_s - self._untold_since_s <= _MAX_UNTOLD_S

    def _cut_short(self, batch: BatchStep, drafts: Drafts) -> Drafts:
        """What of them is worth verifying."""
        row_ids = [row.row_id for row in batch.rows]
        self._answers = {row_id: tuple(draft) for row_id, draft in zip(row_ids, drafts, strict=True)}
        answers = [Answer(row_id, len(draft)) for row_id, draft in self._answers.items()]
        lengths = self._cut.lengths(answers, len(row_ids), self._pace.token_cost(len(row_ids)))
        return [draft[:length] for draft, length in zip(drafts, lengths, strict=True)]

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
        self._learn_fates(batch)
        drafted = self._drafted
        is_same_batch = drafted.keys() == {row.row_id for row in batch.rows}
        if self._was_vain or not is_same_batch or not batch.is_pure_decode:
            return
        if self._is_shadow:
            self._pace.add_shadow_step(now_s - self._called_s, len(batch.rows))
            return
        drafts = tuple((drafted[row.row_id], _num_accepted(row, drafted[row.row_id])) for row in batch.rows)
        self._pace.add_step(StepOutcome(now_s - self._called_s, self._num_requested, drafts))

    def _learn_fates(self, batch: BatchStep) -> None:
        """What became of drafts, of what was not verified of them too."""
        for row in batch.rows:
            answer = self._answers.get(row.row_id)
            if answer is not None and row.num_sampled_tokens:
                num_known = min(self._drafted[row.row_id] + 1, len(answer))
                num_right = min(num_common_tokens(answer, row.new_token_ids), num_known)
                self._cut.learn(Answer(row.row_id, len(answer)), num_known, num_right)
        shadows = self._background.shadows
        num_rows = len(batch.rows)
        while shadows:
            fate = shadows.popleft()
            shadow = Answer(fate.row_id, fate.num_tokens)
            (length,) = self._cut.lengths([shadow], num_rows, self._pace.token_cost(num_rows))
            self._pace.add_shadow(length, min(length, fate.num_right))
            self._cut.learn(shadow, fate.num_tokens, fate.num_right)
        self._cut.keep([row.row_id for row in batch.rows])

    def _note_fault(self) -> None:
        counters = self._background.counters
        counters.num_faults += 1
        if counters.num_faults == 1:
            _log.exception("Pilotfish's proposer failed: vLLM decodes such steps without drafts; told once")
        # The batch may have been followed and not told, with rows that ended in it: none may stay on a replica.
        self._rows.forget()
        self._drafted, self._answers = {}, {}


def _num_accepted(row: RowStep, num_drafted: int) -> int:
    """The last of the tokens that vLLM committed is its own."""
    return min(num_drafted, row.num_sampled_tokens - 1)
