"""The report on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.bench.load.percentiles import Percentiles
from pilotfish.bench.load.point import LoadPoint
from pilotfish.bench.load.result import LoadResult
from pilotfish.bench.tables import MISSING, number

# Two lines each, so that a hundred columns hold them.
_HEADINGS = (
    *("offered\nreq/s", "done\nreq/s", "tok/s\n", "over\n{baseline}", "TTFT\np50", "ms\np99", "ITL\np50", "ms\np99"),
    *("E2E\np50", "ms\np99", "goodput\nreq/s", "acc.\nlen.", "failed\n"),
)


def show(result: LoadResult, console: Console) -> None:
    """Conditions, one table for each load, then what makes figures doubtful."""
    conditions = ", ".join(f"{key} {value}" for key, value in result.conditions.items())
    console.print(conditions, style="dim", soft_wrap=True, markup=False)
    if result.slo is not None:
        console.print(f"good enough: {result.slo}", style="dim", soft_wrap=True, markup=False)
    console.print(load_table(result))
    for line in remarks(result):
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)


def load_table(result: LoadResult) -> Table:
    """One row for each load and mode."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("load", no_wrap=True)
    table.add_column("mode")
    for heading in _HEADINGS:
        table.add_column(heading.format(baseline=result.baseline), justify="right", no_wrap=True)
    last_load = ""
    for point in result.points:
        table.add_row(point.load if point.load != last_load else "", point.mode, *cells(point))
        last_load = point.load
    return table


def cells(point: LoadPoint) -> tuple[str, ...]:
    """The figures of a row, in the order of the headings."""
    drafts = point.drafts
    return (
        number(point.offered_rps, ".3g"),
        number(point.achieved_rps, ".3g"),
        number(point.output_tokens_per_s, ".0f"),
        number(point.throughput_ratio, ".2f", "x"),
        *_p50_p99(point.ttft_ms, ".0f"),
        *_p50_p99(point.itl_ms, ".1f"),
        *_p50_p99(point.e2e_ms, ".0f"),
        number(point.goodput_rps, ".3g"),
        number(drafts.mean_acceptance_length if drafts and drafts.num_draft_tokens else None, ".2f"),
        f"{point.num_failed}/{point.num_requests}" if point.num_failed else "0",
    )


def remarks(result: LoadResult) -> list[str]:
    """Failures, answers that differ, a client that was too slow, reasons for less speculation."""
    lines = []
    for point in result.points:
        where = f"{point.mode}, {point.load}"
        lines += [
            f"{where}: {count} failed with {code}: {point.first_errors[code]}" for code, count in point.errors.items()
        ]
        if point.num_differing:
            lines.append(
                f"{where}: {point.num_differing} of {point.num_compared} answers differ from {result.baseline}'s: "
                "that is a bug, please report it"
            )
        reasons = {reason: count for reason, count in point.reasons.items() if reason}
        if reasons and point.mode != "off":
            lines.append(f"{where}: {', '.join(f'{reason} ({count})' for reason, count in reasons.items())}")
    return lines + result.warnings


def _p50_p99(percentiles: Percentiles | None, form: str) -> tuple[str, str]:
    if percentiles is None:
        return MISSING, MISSING
    return number(percentiles.p50, form), number(percentiles.p99, form)
