"""The cost of a step from a table that was measured on a real engine."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pilotfish.config.fields import STRICT, require


@dataclass(frozen=True, kw_only=True)
class MeasuredCost:
    """A grid of sequences x token rows, bilinear between its points, clamped before the first of them.

    Past the last row or column the last slope goes on: a larger step is a longer one.
    """

    __pydantic_config__ = STRICT

    kind: Literal["measured"] = "measured"
    num_sequences: tuple[int, ...]
    """Sequences of the table's lines, ascending. [S]"""
    num_tokens: tuple[int, ...]
    """Token rows of its columns, over all sequences, ascending. [T]"""
    step_times_s: tuple[tuple[float, ...], ...]
    """Seconds of a step with no context. [S, T]. Where there are fewer rows than sequences, which no step has, the
    value of as many rows as sequences."""
    context_token_s: float = 0.0
    """Seconds that each token of context adds."""

    def __post_init__(self) -> None:
        for name, axis in (("num_sequences", self.num_sequences), ("num_tokens", self.num_tokens)):
            is_ascending = all(a < b for a, b in itertools.pairwise(axis))
            is_axis = bool(axis) and axis[0] >= 1 and is_ascending
            require(is_axis, f"{name} of a measured cost must ascend from 1 or more")
        is_grid = len(self.step_times_s) == len(self.num_sequences) and all(
            len(line) == len(self.num_tokens) for line in self.step_times_s
        )
        require(
            is_grid,
            "step_times_s of a measured cost must have a line for each of num_sequences, with a value for each of "
            "num_tokens",
        )
        require(
            self.context_token_s >= 0 and all(value >= 0 for line in self.step_times_s for value in line),
            "a measured cost must be at least 0 seconds",
        )

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """See StepCost."""
        if num_tokens <= 0:
            return 0.0
        line, line_share = _place(self.num_sequences, num_sequences)
        column, column_share = _place(self.num_tokens, num_tokens)
        values = [_between(times, column, column_share) for times in self.step_times_s[line : line + 2]]
        return _between(values, 0, line_share) + num_context_tokens * self.context_token_s


def _place(axis: Sequence[int], value: int) -> tuple[int, float]:
    """The grid point at or before `value`, and how far towards the next it lies; above 1 past the last."""
    if len(axis) == 1 or value <= axis[0]:
        return 0, 0.0
    index = min(bisect_right(axis, value) - 1, len(axis) - 2)
    return index, (value - axis[index]) / (axis[index + 1] - axis[index])


def _between(values: Sequence[float], index: int, share: float) -> float:
    if share == 0.0:
        return values[index]
    low, high = values[index], values[index + 1]
    if share > 1:
        # Past the grid noise must not make a larger step the shorter one.
        return high + (share - 1) * max(0.0, high - low)
    return low + share * (high - low)
