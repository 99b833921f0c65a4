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
_TURNS, _SAMPLES = 3, 2
"""Turns of all loads, and samples of a size in each: other processes make steps longer for a while."""


def measure_verification(
    timer: ShapeTimes, loads: Sequence[int], context_tokens: int, max_rows: int, num_draft_tokens: int
) -> MeasuredCost:
    """Steps of an idle target at each load, as far as a step and the KV cache have room for them, by the least of
    several samples, and of those of larger steps.

    num_draft_tokens: of each sequence, at most.

    Raises ConfigError where the KV cache has no room for a single sequence.
    """
    lines: dict[int, dict[int, float]] = {}
    for load in tuple(loads) * _TURNS:
        longest = min(max_rows // load, num_draft_tokens + 1)
        rows_each = [each for each in _ROWS_EACH if each <= longest]
        try:
            times_s = _least_s(timer, load, context_tokens, rows_each)
        except ConfigError:
            if not lines:
                raise
            for sequence_id in tuple(timer.lengths):
                timer.close(sequence_id)
            timer.settle()
            continue
        before_s = lines.get(load, times_s)
        lines[load] = {rows: min(step_s, before_s[rows]) for rows, step_s in times_s.items()}
    columns = sorted({rows for line in lines.values() for rows in line})
    return MeasuredCost(
        num_sequences=tuple(lines),
        num_tokens=tuple(columns),
        step_times_s=_rising([_at(line, columns) for line in lines.values()]),
    )


def _least_s(timer: ShapeTimes, load: int, context_tokens: int, rows_each: Sequence[int]) -> dict[int, float]:
    """The least time of a step, by the rows of all its sequences."""
    least_s: dict[int, float] = {}
    with timer.opened(load, context_tokens) as sequences:
        for each in (*rows_each,) * _SAMPLES:
            step_s = timer.verify_s(sequences, each)
            least_s[load * each] = min(step_s, least_s.get(load * each, math.inf))
    return least_s


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
