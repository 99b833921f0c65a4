"""How far predictions were off, of drafters in the target and of those in the draft service."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.report import Report

MEDIAN_ASKED, WORST_ASKED = 0.05, 0.10
TARGET, DRAFT_SERVICE = "in the target", "in the draft service"
"""Places of a drafter. On one machine the draft service takes the target's cores, which no prediction knows."""


def add_checks(report: Report) -> None:
    """Check the rows' predictions: tokens a step, speed-up over plain decoding, tokens/s."""
    for place in (TARGET, DRAFT_SERVICE):
        for what in ("tokens", "speed_up", "tokens_per_s"):
            if errors := list(_errors(report.rows, place, what)):
                name = f"{place}: {what.replace('_per_', '/').replace('_', '-')}"
                report.check(f"{name}, median error", statistics.median(errors), MEDIAN_ASKED, kind="at most")
                report.check(f"{name}, worst error", max(errors), WORST_ASKED, kind="at most")


def _errors(rows: Sequence[Mapping[str, Any]], place: str, what: str) -> Iterator[float]:
    for row in rows:
        if row["place"] == place:
            yield from _error(row, what)


def _error(row: Mapping[str, Any], what: str) -> Iterator[float]:
    prefix = "" if what == "tokens_per_s" else f"{what}_"
    if measured := row[f"{prefix}measured"]:
        yield abs(row[f"{prefix}predicted"] / measured - 1)
