"""One notion of a quantile for all reports."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; pNN: NN % of the values are no larger."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def percentiles_ms(values_s: Iterable[float | None]) -> Percentiles | None:
    """Of those that are known; None: none is."""
    values = sorted(value * 1e3 for value in values_s if value is not None)
    if not values:
        return None
    shares = {name: nearest_rank(values, int(name[1:]) / 100) for name in ("p50", "p90", "p95", "p99")}
    return Percentiles(mean=statistics.fmean(values), max=values[-1], **shares)


def nearest_rank(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values (at least one, ascending) do not exceed."""
    # Rounded first: 0.99 * 100 is a little above 99.
    rank = -int(-round(share * len(sorted_values), 9) // 1)
    return sorted_values[max(rank, 1) - 1]
