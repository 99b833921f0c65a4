"""A finished load test, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.percentiles import Percentiles
from pilotfish.bench.load.point import LoadPoint, point_of
from pilotfish.bench.load.slo import Slo
from pilotfish.bench.machine import Machine

Windows = Mapping[tuple[Level, str], Sequence[Window]]
"""What the turns of each (level, mode) saw."""


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    date: str
    """When it ended: ISO 8601, UTC."""
    machine: Machine
    conditions: dict[str, str | int | float | bool]
    slo: Slo | None
    baseline: str
    """The mode that ratios are over."""
    points: list[LoadPoint]
    """Level by level."""

    @property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(point.mode for point in self.points))

    @property
    def warnings(self) -> list[str]:
        """What makes figures doubtful, with where."""
        return [f"{point.mode}, {point.load}: {warning}" for point in self.points for warning in point.client.warnings]


def points_of(windows: Windows, slo: Slo | None, baseline: str, *, with_texts: bool) -> list[LoadPoint]:
    """A point for each level and mode, held against the baseline mode at that level.

    with_texts: answers of one index must be equal in all modes and turns, so they are compared.
    """
    points = {key: point_of(mode, level, turns, slo) for key, turns in windows.items() for level, mode in (key,)}
    compared = []
    for (level, mode), point in points.items():
        plain = points.get((level, baseline))
        if plain is None or mode == baseline:
            compared.append(point)
            continue
        num_compared, num_differing = _texts(windows[level, mode], windows[level, baseline]) if with_texts else (0, 0)
        compared.append(
            msgspec.structs.replace(
                point,
                throughput_ratio=_ratio(point.output_tokens_per_s, plain.output_tokens_per_s),
                itl_ratio=_median_ratio(point.itl_ms, plain.itl_ms),
                e2e_ratio=_median_ratio(point.e2e_ms, plain.e2e_ms),
                num_compared=num_compared,
                num_differing=num_differing,
            )
        )
    return compared


def _texts(ours: Sequence[Window], theirs: Sequence[Window]) -> tuple[int, int]:
    """(answers that both gave, those that differ)."""
    plain = {record.index: record.digest for window in theirs for record in window.measured if record.is_ok}
    both = [record for window in ours for record in window.measured if record.is_ok and record.index in plain]
    return len(both), sum(record.digest != plain[record.index] for record in both)


def _median_ratio(ours: Percentiles | None, theirs: Percentiles | None) -> float | None:
    return _ratio(ours.p50, theirs.p50) if ours is not None and theirs is not None else None


def _ratio(value: float, base: float) -> float | None:
    return value / base if base else None


def to_json(result: LoadResult) -> str:
    """For programs: field names are those of the structs."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode()
