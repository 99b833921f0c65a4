"""What a target's steps take by sequences and by rows.

A step of four sequences with a draft each takes longer than one of a single sequence with as many rows: every draft is
judged by itself, and every sequence has keys and values of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from pilotfish.emulation.cost_measurement import ShapeTimes
from pilotfish.emulation.profiles.step_cost import MeasuredCost
from pilotfish.errors import ConfigError

_ROWS_EACH = (1, 2, 3, 5, 9)
"""Rows of a sequence: the token that is there, and drafts."""
_MIN_ROUNDS, _MAX_ROUNDS = 2, 6
"""Samples of each size, a round of all others apart: other processes make steps longer for a while."""
_BUDGET_S = 10.0
"""Time of the steps after which no further round begins."""


def measure_verification(
    timer: ShapeTimes, loads: Sequence[int], context_tokens: int, max_rows: int, num_draft_tokens: int
) -> MeasuredCost:
    """Steps of an idle target at each load, as far as a step and the KV cache have room for them, by the least of
    several samples, and of those of larger steps.

    num_draft_tokens: of each sequence, at most.

    Raises ConfigError where the KV cache has no room for a single sequence.
    """
    shapes = {
        load: [each for each in _ROWS_EACH if each <= min(max_rows // load, num_draft_tokens + 1)]
        for load in loads
        if load <= max_rows
    }
    try:
        lines = _least_s(timer, shapes, context_tokens)
    except ConfigError:
        if len(loads) == 1:
            raise
        return measure_verification(timer, loads[:-1], context_tokens, max_rows, num_draft_tokens)
    columns = sorted({rows for line in lines.values() for rows in line})
    return MeasuredCost(
        num_sequences=tuple(lines),
        num_tokens=tuple(columns),
        step_times_s=_rising([_at(line, columns) for line in lines.values()]),
    )


def _least_s(
    timer: ShapeTimes, shapes: Mapping[int, Sequence[int]], context_tokens: int
) -> dict[int, dict[int, float]]:
    """The least time of a step, by sequences and by the rows of them all. shapes: rows of a sequence, by sequences."""
    lines: dict[int, dict[int, float]] = {load: {} for load in shapes}
    spent_s = 0.0
    with timer.opened(max(shapes), context_tokens) as sequences:
        for num_done in range(_MAX_ROUNDS):
            if num_done >= _MIN_ROUNDS and spent_s > _BUDGET_S:
                break
            for load, rows_each in shapes.items():
                for each in rows_each:
                    step_s = timer.verify_s(sequences[:load], each)
                    spent_s += step_s
                    lines[load][load * each] = min(step_s, lines[load].get(load * each, math.inf))
    return lines


def _at(line: Mapping[int, float], columns: Sequence[int]) -> list[float]:
    """The line's times at these rows: between those that were timed, on a straight line."""
    known = MeasuredCost(num_sequences=(1,), num_tokens=tuple(line), step_times_s=(tuple(line.values()),))
    return [known.step_s(1, rows) for rows in columns]


def _rising(grid: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """No step takes longer than one of more rows or more sequences: where it was timed so, it is noise."""
    lines: list[list[float]] = []
    for line in reversed(grid):
        least = map(min, line, lines[-1]) if lines else line
        lines.append(list(accumulate(reversed(list(least)), min))[::-1])
    return tuple(map(tuple, reversed(lines)))
