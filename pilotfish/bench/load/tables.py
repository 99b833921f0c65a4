"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.bench.load.point import LoadPoint, LoadResult
from pilotfish.bench.metrics import Percentiles
from pilotfish.bench.tables import MISSING, number

MAX_CPU_SHARE = 0.9
"""One Python process has one core: above this the client is the bottleneck."""


def show(result: LoadResult, console: Console) -> None:
    """Conditions, what was achieved, how long it took, then what makes figures doubtful."""
    conditions = ", ".join(f"{key} {value}" for key, value in result.conditions.items())
    console.print(conditions, style="dim", soft_wrap=True, markup=False)
    console.print(rates_table(result))
    console.print(latency_table(result))
    for line in remarks(result):
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)


def rates_table(result: LoadResult) -> Table:
    """One row for each load and mode: what was answered."""
    # Two lines each, so that eighty columns hold them.
    table = _table("done\nreq/s", "tok/s\n", f"over\n{result.baseline}", "acc.\nrate", "acc.\nlen.", "failed\n")
    for load, point in _labelled(result):
        drafts = point.drafts if point.drafts and point.drafts.num_draft_tokens else None
        table.add_row(
            load,
            point.mode,
            number(point.requests_per_s, ".3g"),
            number(point.output_tokens_per_s, ".0f"),
            number(point.throughput_ratio, ".2f", "x"),
            number(drafts.acceptance_rate if drafts else None, ".0%"),
            number(drafts.mean_acceptance_length if drafts else None, ".2f"),
            f"{point.num_failed}/{point.num_requests}" if point.num_failed else "0",
        )
    return table


def latency_table(result: LoadResult) -> Table:
    """One row for each load and mode, in milliseconds."""
    table = _table("TTFT\np50", "ms\np99", "ITL\np50", "ms\np99", "TPOT\np50", "ms\np99", "E2E\np50", "ms\np99")
    for load, point in _labelled(result):
        columns = [(point.ttft_ms, ".0f"), (point.itl_ms, ".1f"), (point.tpot_ms, ".1f"), (point.e2e_ms, ".0f")]
        table.add_row(load, point.mode, *(cell for each, form in columns for cell in _p50_p99(each, form)))
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("in\nflight", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _labelled(result: LoadResult) -> Iterator[tuple[str, LoadPoint]]:
    """The points, each load named once."""
    last = 0
    for point in result.points:
        yield str(point.concurrency) if point.concurrency != last else "", point
        last = point.concurrency


def remarks(result: LoadResult) -> list[str]:
    """Failures, answers that differ, reasons for less speculation, a client that was too slow."""
    lines = []
    for point in result.points:
        where = f"{point.mode}, {point.concurrency} in flight"
        lines += [
            f"{where}: {count} failed with {code}: {point.first_errors[code]}" for code, count in point.errors.items()
        ]
        if point.num_differing:
            lines.append(
                f"{where}: {point.num_differing} of {point.num_compared} answers differ from {result.baseline}'s: "
                "that is a bug, please report it"
            )
        if point.mode != "off":
            lines += [
                f"{where}: speculation limited in {point.reasons[name]} of {point.num_requests}: {text}"
                for name, text in point.first_reasons.items()
            ]
        if point.client_cpu_share > MAX_CPU_SHARE:
            lines.append(
                f"{where}: this program used {point.client_cpu_share:.0%} of a core: it was the bottleneck, use "
                "several or a faster machine"
            )
    return lines


def _p50_p99(percentiles: Percentiles | None, form: str) -> tuple[str, str]:
    if percentiles is None:
        return MISSING, MISSING
    return number(percentiles.p50, form), number(percentiles.p99, form)
