"""How long a round takes and which draft length is fastest, by the batch: formulas corrected by simulated rounds."""

from __future__ import annotations

from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import Placement
from pilotfish.planning.rounds import Rounds

_TOLERANCE = 0.03
"""The shortest of draft lengths that differ by less: the rows of longer ones are taken from prompts."""


class BatchTimes:
    """Of one target replica and its drafters. Batches between powers of two are interpolated."""

    def __init__(self, model: DecodingModel, *, stepwise: bool) -> None:
        """stepwise: simulate rounds. Sequences that share an engine with their drafter are in step by themselves."""
        self.model = model
        self._stepwise = stepwise and model.placement is Placement.SEPARATE
        self._cells: dict[tuple[int, int], float] = {}
        self._best: dict[int, int] = {}

    def token_s(self, batch: int, num_draft_tokens: int) -> float:
        """From token to token of one sequence, on average."""
        return self.model.token_s(batch, num_draft_tokens) * self.correction(batch, num_draft_tokens)

    def policy_k(self, batch: int) -> int:
        """The draft length used for this batch: the fixed one, or the fastest that the ranges allow.

        So decides a controller whose measurements are right.
        """
        drafting = self.model.drafting
        if self.model.placement is Placement.NONE:
            return 0
        if drafting.fixed_draft_tokens is not None:
            return drafting.fixed_draft_tokens
        limits = [limit for first, last, limit in drafting.per_batch_size if first <= batch <= last]
        if not self._stepwise:
            return min([self.model.best_k(batch), *limits])
        candidates = {0, *(self._best_cell(power) for power in _powers_around(batch))}
        limited = {min([k, *limits]) for k in candidates}
        return min(sorted(limited), key=lambda k: self.token_s(batch, k))

    def correction(self, batch: int, num_draft_tokens: int) -> float:
        """Simulated rounds over the formula's."""
        if not self._stepwise or num_draft_tokens == 0:
            return 1.0
        low, high = _powers_around(batch)
        share = (batch - low) / (high - low) if high > low else 0.0
        return (1 - share) * self._cell(low, num_draft_tokens) + share * self._cell(high, num_draft_tokens)

    def _best_cell(self, batch: int) -> int:
        """Of a power of two."""
        if batch not in self._best:
            plain_s = self.model.token_s(batch, 0)
            # However well rounds overlap, each is verified: what does not pay then never does.
            candidates = [
                k
                for k in range(1, self.model.drafting.max_draft_tokens + 1)
                if self.model.verify_s(batch, k) < plain_s * self.model.drafting.expected_tokens(k)
            ]
            times = {k: self.token_s(batch, k) for k in (0, *candidates)}
            limit = (1 + _TOLERANCE) * min(times.values())
            self._best[batch] = min(k for k in times if times[k] <= limit)
        return self._best[batch]

    def _cell(self, batch: int, num_draft_tokens: int) -> float:
        key = batch, num_draft_tokens
        if key not in self._cells:
            ratio = self.model.targets_per_drafter
            num_targets = max(1, round(ratio))
            num_drafters = max(1, round(num_targets / ratio))
            rounds = Rounds(self.model, batch, num_draft_tokens, num_targets=num_targets, num_drafters=num_drafters)
            self._cells[key] = rounds.measure_round_s() / self.model.round_s(batch, num_draft_tokens)
        return self._cells[key]


def _powers_around(batch: int) -> tuple[int, int]:
    """The powers of two at or below, and at or above."""
    high = 1 << (batch - 1).bit_length()
    return (high, high) if high == batch else (high // 2, high)
