"""A finished benchmark, and its JSON form."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from pilotfish.bench.arms import PLAIN
from pilotfish.bench.machine import Machine
from pilotfish.bench.metrics import Row
from pilotfish.bench.verdicts import Verdict


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    date: str
    """When it ended: ISO 8601, UTC."""
    machine: Machine
    conditions: dict[str, str | int | float | bool]
    """Model, prompts, lengths, sampling: what the figures hold for."""
    rows: list[Row]
    verdicts: list[Verdict]
    baseline: str = PLAIN
    """The arm that speed-ups are over."""

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))

    @property
    def categories(self) -> list[str]:
        return list(dict.fromkeys(row.category for row in self.rows))

    def row(self, arm: str, category: str) -> Row:
        return next(row for row in self.rows if (row.arm, row.category) == (arm, category))

    @property
    def overall(self) -> list[Row]:
        """One row for each arm: over all categories, or of the only one."""
        return [row for row in self.rows if row.category == self.categories[-1]]


def now() -> str:
    """The date of a result that ends now."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def to_json(result: Result) -> str:
    """For programs: field names are those of the dataclasses."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode()
