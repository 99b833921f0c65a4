"""When a step takes half of the drafts that are ready, and leaves the other half to the next one. Pure.

Where all sequences are verified in one step, the target stands still while all of them are drafted for. In two
micro-batches that take turns, either is drafted for while the other is verified. What that costs is the part of a step
that does not depend on its rows, mostly reading the weights, a second time.
"""

from __future__ import annotations

from collections.abc import Callable

_MARGIN = 1.05
"""Speed that turns have to gain: who takes them seldom comes into step again."""


def first_micro_batch(
    num_sequences: int,
    num_rows: float,
    idle_ns: float,
    least_ns: Callable[[float], float],
    most_ns: Callable[[float], float],
) -> int:
    """Sequences that the next step should verify, of num_sequences with num_rows rows in all: all of them, or half.

    idle_ns: that the target stood still before the step, as it would before the next one. least_ns, most_ns: what a
    step of so many rows takes, if that is not measured.
    """
    first = -(-num_sequences // 2)
    first_ns = most_ns(num_rows * first / num_sequences)
    second_ns = most_ns(num_rows * (num_sequences - first) / num_sequences)
    in_turns_ns = first_ns + max(second_ns, idle_ns)
    return first if _MARGIN * in_turns_ns < least_ns(num_rows) + idle_ns else num_sequences
