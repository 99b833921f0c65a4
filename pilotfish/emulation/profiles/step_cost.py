"""What one engine step costs: the interface, costs by formula, and costs from a table that was measured."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from pilotfish.config.fields import STRICT, require


class StepCost(Protocol):
    """The duration of an engine step, given what it computes."""

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """Seconds of one step.

        num_sequences: sequences in the step.
        num_tokens: token rows that it computes over all of them: 1 for a decode, K + 1 for a verification, the
            chunk for a prefill. 0 costs nothing.
        num_context_tokens: length of their contexts, added up.
        """


@dataclass(frozen=True, kw_only=True)
class RooflineCost:
    """The cost overhead + max(reading the weights, computing the rows) + reading the KV cache.

    Few rows wait for the weights, however many they are; many rows wait for the arithmetic. The KV cache is
    read by the attention kernels, between the linears and not beside them, so that its time adds up.
    """

    __pydantic_config__ = STRICT

    kind: Literal["roofline"] = "roofline"
    weights_s: float
    """Seconds to read all weights once: weight bytes / (GPUs x memory bandwidth x efficiency)."""
    token_s: float
    """Seconds to compute a token row: 2 x parameters / (GPUs x FLOP/s x efficiency)."""
    context_token_s: float = 0.0
    """Seconds to read a context token's keys and values: KV bytes / (GPUs x memory bandwidth x efficiency)."""
    overhead_s: float = 0.0
    """Seconds of every step, whatever it computes: launching, sampling, synchronising."""

    def __post_init__(self) -> None:
        for name in ("weights_s", "token_s", "context_token_s", "overhead_s"):
            require(getattr(self, name) >= 0, f"{name} of a roofline must be at least 0 seconds")

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """See StepCost. How the rows are spread over sequences makes no difference."""
        del num_sequences
        if num_tokens <= 0:
            return 0.0
        linear_s = max(self.weights_s, num_tokens * self.token_s)
        return self.overhead_s + linear_s + num_context_tokens * self.context_token_s


@dataclass(frozen=True)
class ScaledCost:
    """Hardware that is slower by one factor in everything: what a draft step costs of a verification stays the same."""

    cost: StepCost
    factor: float

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        return self.factor * self.cost.step_s(num_sequences, num_tokens, num_context_tokens)


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
        if num_tokens <= 0:
            return 0.0
        line, line_share = _place(self.num_sequences, num_sequences)
        column, column_share = _place(self.num_tokens, num_tokens)
        values = [_between(times, column, column_share) for times in self.step_times_s[line : line + 2]]
        return _between(values, 0, line_share) + num_context_tokens * self.context_token_s


AnyCost = Annotated[RooflineCost | MeasuredCost, Field(discriminator="kind")]
"""A cost in a file."""


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
