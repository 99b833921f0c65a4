"""A finished load test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.point import LoadPoint, point_of
from pilotfish.bench.machine import Machine

Windows = Mapping[tuple[int, str], Sequence[Window]]
"""What the turns of each (concurrency, mode) saw."""


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    date: str
    """When it ended: ISO 8601, UTC."""
    machine: Machine
    conditions: dict[str, str | int | float | bool]
    baseline: str
    """The mode that ratios are over."""
    points: list[LoadPoint]
    """Load by load."""


def points_of(windows: Windows, baseline: str, *, with_texts: bool) -> list[LoadPoint]:
    """A point for each load and mode, held against the baseline mode at that load.

    with_texts: answers of one index must be equal in all modes and turns, so they are compared.
    """
    points = {key: point_of(mode, concurrency, turns) for key, turns in windows.items() for concurrency, mode in (key,)}
    compared = []
    for (concurrency, mode), point in points.items():
        plain = points.get((concurrency, baseline))
        if plain is None or mode == baseline:
            compared.append(point)
            continue
        ours, theirs = windows[concurrency, mode], windows[concurrency, baseline]
        num_compared, num_differing = _texts(ours, theirs) if with_texts else (0, 0)
        plain_per_s = plain.output_tokens_per_s
        compared.append(
            msgspec.structs.replace(
                point,
                throughput_ratio=point.output_tokens_per_s / plain_per_s if plain_per_s else None,
                num_compared=num_compared,
                num_differing=num_differing,
            )
        )
    return compared


def _texts(ours: Sequence[Window], theirs: Sequence[Window]) -> tuple[int, int]:
    """(answers that both gave, those that differ)."""
    plain = {record.index: record.answer.token_ids for window in theirs for record in window.measured if record.is_ok}
    both = [record for window in ours for record in window.measured if record.is_ok and record.index in plain]
    return len(both), sum(record.answer.token_ids != plain[record.index] for record in both)
