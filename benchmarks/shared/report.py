"""What every benchmark shares: its options, the machine, checks, the table and the JSON file.

A check is a figure with the bound it is held against; whether it holds is reported, never the exit status.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.bench.machine import this_machine


@dataclass(frozen=True, slots=True)
class Check:
    """One asked figure: holds when value is at most (or at least) bound."""

    name: str
    value: float
    unit: str
    bound: float
    kind: Literal["at most", "at least", "equal to"] = "at most"

    @property
    def holds(self) -> bool:
        if self.kind == "at most":
            return self.value <= self.bound
        return self.value >= self.bound if self.kind == "at least" else self.value == self.bound


@dataclass(slots=True)
class Report:
    """Collects rows and checks of one run."""

    question: str
    conditions: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    """Keys of rows that the table shows, with their headings, for 80 characters; empty: all keys. JSON has all."""

    def row(self, **values: Any) -> None:
        """Add a line of the table."""
        self.rows.append(values)

    def check(
        self,
        name: str,
        value: float,
        bound: float,
        unit: str = "x",
        kind: Literal["at most", "at least", "equal to"] = "at most",
    ) -> None:
        self.checks.append(Check(name, round(value, 4), unit, bound, kind))

    def show(self) -> None:
        console = Console()
        console.print(f"[bold]{self.question}[/bold]")
        console.print(escape(", ".join(f"{key} {value}" for key, value in self.conditions.items())), style="dim")
        columns = self.columns or {key: key for row in self.rows for key in row}
        is_narrow = bool(self.columns)
        look = box.SIMPLE_HEAD if is_narrow else box.HEAVY_HEAD
        table = Table(box=look, collapse_padding=is_narrow, pad_edge=not is_narrow)
        for heading in columns.values():
            table.add_column(heading, overflow="fold")
        for row in self.rows:
            table.add_row(*(escape(_cell(row.get(column, ""))) for column in columns))
        console.print(table)
        self.show_checks()

    def show_checks(self) -> None:
        """The figures that are asked for."""
        if self.checks:
            checks = Table("check", "value", "asked", "holds")
            for check in self.checks:
                holds = "[green]yes[/green]" if check.holds else "[red]no[/red]"
                checks.add_row(
                    check.name, f"{check.value:g} {check.unit}", f"{check.kind} {check.bound:g} {check.unit}", holds
                )
            Console().print(checks)

    def write(self, path: Path) -> None:
        """The machine-readable form."""
        content = {
            "question": self.question,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": msgspec.to_builtins(this_machine()),
            "conditions": self.conditions,
            "rows": self.rows,
            "checks": [asdict(check) | {"holds": check.holds} for check in self.checks],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def finish(self, options: argparse.Namespace, *, has_shown_rows: bool = False) -> None:
        """Show, and write where --json asks for it. has_shown_rows: the rows are on the terminal already."""
        if options.json:
            self.write(options.json)
        if has_shown_rows:
            self.show_checks()
        else:
            self.show()


def parser(description: str | None, *, dataset: bool = False) -> argparse.ArgumentParser:
    """The options all benchmarks have."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--json", type=Path, help="write machine, conditions, rows and checks to this file")
    result.add_argument("--quick", action="store_true", help="fewer samples: done within a minute")
    if dataset:
        result.add_argument("--dataset", type=Path, help="Spec-Bench's jsonl (default: a small set of our own)")
    return result


def dataset_name(options: argparse.Namespace) -> str:
    """Where the prompts came from, of a `parser` with `dataset`."""
    return options.dataset.name if options.dataset else "our own set"


def median_ms(run: Callable[[], object], samples: int, warm_up: int = 3) -> float:
    """Median wall time of run() in milliseconds."""
    return statistics.median(times_ms(run, samples, warm_up))


def times_ms(run: Callable[[], object], samples: int, warm_up: int = 3) -> list[float]:
    """Wall times of run() in milliseconds, after warm_up uncounted calls."""
    for _ in range(warm_up):
        run()
    times = []
    for _ in range(samples):
        start = perf_counter_ns()
        run()
        times.append((perf_counter_ns() - start) / 1e6)
    return times


def interleaved_ms(runs: Sequence[Callable[[], object]], samples: int, warm_up: int = 3) -> list[float]:
    """Median of each of runs, taken in turn: slow spells of a shared machine hit all alike."""
    turns = [[times_ms(run, 1, warm_up=0)[0] for run in runs] for _ in range(warm_up + samples)]
    return [statistics.median(times) for times in zip(*turns[warm_up:], strict=True)]


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
