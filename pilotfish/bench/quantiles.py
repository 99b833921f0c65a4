"""One notion of a quantile for all reports."""

from __future__ import annotations

from collections.abc import Sequence


def nearest_rank(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values (at least one, ascending) do not exceed."""
    # Rounded first: 0.99 * 100 is a little above 99.
    rank = -int(-round(share * len(sorted_values), 9) // 1)
    return sorted_values[max(rank, 1) - 1]
