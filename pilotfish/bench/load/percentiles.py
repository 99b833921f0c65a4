"""A distribution of times in the few figures that reports show."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec

from pilotfish.bench.quantiles import nearest_rank


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
    return Percentiles(
        mean=statistics.fmean(values),
        p50=nearest_rank(values, 0.5),
        p90=nearest_rank(values, 0.9),
        p95=nearest_rank(values, 0.95),
        p99=nearest_rank(values, 0.99),
        max=values[-1],
    )
