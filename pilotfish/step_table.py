"""What a step takes by the token rows in it, as a replica reports it to its peers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

_FREE = 1.1
"""A tree may fill a step with nodes as long as it takes no more than this times the step with one chain: among
several sequences, rows that cost something go to the likeliest tokens of chains."""


class StepTable(msgspec.Struct, frozen=True):
    """Nanoseconds of a step by its token rows; empty: nothing is known."""

    rows: tuple[int, ...] = ()
    """Token rows, ascending."""
    step_ns: tuple[int, ...] = ()
    """Duration of a step of so many rows, one for each."""

    def step_s(self, num_rows: float) -> float:
        """Seconds of a step of so many rows; 0.0 as long as nothing is known."""
        return interpolate(self.rows, self.step_ns, num_rows) / 1e9


def interpolate(rows: Sequence[int], known: Sequence[float], num_rows: float) -> float:
    """What a step of num_rows takes, by what is known of steps of `rows` (ascending); 0.0 if that is nothing.

    Between two cells the least that a roofline allows, so that larger steps are tried; beyond the last one on the last
    slope.
    """
    if len(rows) < 2 or num_rows <= rows[0]:
        return known[0] if rows else 0.0
    at = min(bisect_left(rows, num_rows), len(rows) - 1)
    if num_rows <= rows[at]:
        return min(known[at], max(known[at - 1], known[at] * num_rows / rows[at]))
    # Past the table noise must not make a larger step the shorter one.
    slope = max(0.0, known[at] - known[at - 1]) / (rows[at] - rows[at - 1])
    return known[at] + slope * (num_rows - rows[at])


def num_free_nodes(step_s: Callable[[float], float], num_sequences: int, num_draft_tokens: int, most: int) -> int:
    """Nodes that each sequence's tree may have, with the step about as short as for a chain of one: more than
    num_draft_tokens, or chains are better."""
    longest_s = _FREE * step_s(num_sequences + num_draft_tokens)
    num_nodes = num_draft_tokens
    while num_nodes < most and step_s(num_sequences * (2 + num_nodes)) <= longest_s:
        num_nodes += 1
    return num_nodes
