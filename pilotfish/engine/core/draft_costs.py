"""What drafts cost a target that drafts for itself, as measured: how far to draft.

A step of T seconds yields Y tokens. Whatever makes it t seconds longer pays if it adds more than t * Y / T
tokens: a further round of the drafter by the chance that the target comes to its newest tokens, a further
row of the verification by the chance that the target comes to the row's token.
"""

from __future__ import annotations

from dataclasses import dataclass

_DECAY = 0.98
"""Of what was measured, each step: about the last fifty steps count."""
_ROW_SHARE, _ROUND_SHARE = 0.014, 0.1
"""Of a step of one row, where nothing has been measured: SmolLM2-135M and its EAGLE-3 head on two cores."""
_PRIOR_STEPS = 10.0
"""So many steps of evidence stand behind those shares."""
_FORGOTTEN = 0.001
"""Of a step: with less left than that, 500 steps have passed of which none said anything."""
_MAX_ROWS = 64
"""Steps of more rows hold a prefill, and say little about a decode."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The least confidence that pays, as probabilities."""

    round: float = 0.2
    """That the target comes to the newest tokens, for another round of the drafter."""
    node: float = 0.02
    """That the target comes to a node of a tree, for its verification."""


DEFAULT_THRESHOLDS = Thresholds()


_SUMS = ("steps", "rows", "time_s", "rows_squared", "rows_times_s", "tokens", "rounds", "draft_s")


class DraftCosts:
    """Moving sums over steps. Pure: time is an argument."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._counts = False
        """Whether the last step is among the sums."""

    def add_step(self, num_rows: int, forward_s: float, num_tokens: int) -> None:
        """A step of the target; num_tokens: what it has committed for all its sequences."""
        self._sums = {name: _DECAY * value for name, value in self._sums.items()}
        self._counts = 0 < num_rows <= _MAX_ROWS and num_tokens > 0
        if self._counts:
            values = (1, num_rows, forward_s, num_rows**2, num_rows * forward_s, num_tokens)
            for name, value in zip(self._sums, values, strict=False):
                self._sums[name] += value

    def add_draft(self, num_rounds: int, draft_s: float) -> None:
        """What the drafter did after that step; without a round its time tells nothing.

        It counts as its step does: beside a step that is left out its time would stand without that step's tokens.
        """
        if num_rounds == 0 or not self._counts:
            return
        self._sums["rounds"] += num_rounds
        self._sums["draft_s"] += draft_s

    def thresholds(self) -> Thresholds:
        """As things stand; the defaults before the first step, and where all that told something are long past."""
        num_steps, rows, time_s, rows_squared, rows_times_s, num_tokens, num_rounds, draft_s = self._sums.values()
        if num_steps < _FORGOTTEN or time_s == 0:
            return DEFAULT_THRESHOLDS
        mean_rows, forward_s = rows / num_steps, time_s / num_steps
        # A line through (rows, seconds); the prior is a line of the assumed slope through the mean.
        variance = rows_squared / num_steps - mean_rows**2
        covariance = rows_times_s / num_steps - mean_rows * forward_s
        prior = _PRIOR_STEPS / (num_steps + _PRIOR_STEPS)
        assumed_row_s = _ROW_SHARE * forward_s / (1 + _ROW_SHARE * (mean_rows - 1))
        row_s = (covariance + prior * assumed_row_s) / (variance + prior)
        round_s = (draft_s + _PRIOR_STEPS * _ROUND_SHARE * forward_s) / (num_rounds + _PRIOR_STEPS)
        tokens_per_s = num_tokens / (time_s + draft_s)
        return Thresholds(
            round=min(max(round_s * tokens_per_s, 0.02), 0.9),
            node=min(max(row_s * tokens_per_s, 0.005), 0.5),
        )
