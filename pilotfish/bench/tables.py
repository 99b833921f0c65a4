"""The report on a terminal."""

from __future__ import annotations

from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.bench.grading import Accuracy
from pilotfish.bench.metrics import ALL, DraftMetrics, Row
from pilotfish.bench.result import Result
from pilotfish.bench.verdicts import ArmVerdict

STYLES = {
    "pays": "green",
    "does not pay": "yellow",
    "costs accuracy": "yellow",
    "unclear": "yellow",
    "too noisy": "yellow",
    "too short": "yellow",
    "differs": "bold red",
}
MISSING = "-"


def show(result: Result, console: Console) -> None:
    """Conditions, one table for each category, one of what each arm comes to, the verdicts."""
    conditions = ", ".join(f"{key} {value}" for key, value in result.conditions.items())
    console.print(conditions, style="dim", soft_wrap=True, markup=False)
    for category in result.categories:
        console.print(
            category_table([row for row in result.rows if row.category == category], heading(result, category))
        )
    console.print(_arms_table(result))
    for verdict in result.verdicts:
        console.print(verdict_line(verdict), soft_wrap=True)


def heading(result: Result, category: str) -> str:
    """The category, and how many of the baseline's answers to it have a speed."""
    row = result.row(result.baseline, category)
    name = "all categories" if category == ALL else category
    return f"{name}: {row.num_timed} of {row.num_answers} answers long enough to time"


def category_table(rows: list[Row], title: str) -> Table:
    """One row for each arm."""
    # Two lines each, so that eighty columns hold them.
    headings = (
        *("tok/s\n", "speed\nup", "total\nms", "TTFT\nms", "acc.\nrate", "acc.\nlen."),
        *("accepted\n", "rejected\n", "same\ntext"),
    )
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _arms_table(result: Result) -> Table:
    """Quality and verdict of every arm, over all categories; what no arm has is left out."""
    conclusions = {verdict.arm: verdict.conclusion for verdict in result.arm_verdicts}
    columns: dict[str, list[str]] = {
        "speed\nup": [number(row.speed_up, ".2f", "x") for row in result.overall],
        "tokens\na step": [number(row.speed_up_bound, ".2f") for row in result.overall],
        "right\nanswers": [_right(row.accuracy) for row in result.overall],
        "mean log-\nprobability": [_opinion(result, row, "mean_logprob", ".2f") for row in result.overall],
        "not the\nfirst choice": [_opinion(result, row, "other_tokens", ".0%") for row in result.overall],
    }
    known = {heading: cells for heading, cells in columns.items() if set(cells) != {MISSING}}
    table = Table(title="every arm", title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in known:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict\n", no_wrap=True)
    for row, *cells in zip(result.overall, *known.values(), strict=True):
        conclusion = conclusions.get(row.arm, MISSING)
        table.add_row(escape(row.arm), *cells, conclusion, style=STYLES.get(conclusion))
    return table


def _right(accuracy: Accuracy | None) -> str:
    """The share with its standard error, if there is one."""
    if accuracy is None:
        return MISSING
    return f"{accuracy.right:.0%}" + ("" if accuracy.error is None else f" +-{100 * accuracy.error:.0f}")


def _opinion(result: Result, row: Row, name: Literal["mean_logprob", "other_tokens"], form: str) -> str:
    quality = result.qualities.get(row.arm)
    return MISSING if quality is None else format(getattr(quality, name), form)


def verdict_line(verdict: ArmVerdict) -> str:
    """The sentence, coloured."""
    style = STYLES.get(verdict.conclusion, "")
    return f"[{style}]{escape(verdict.sentence)}[/]" if style else escape(verdict.sentence)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        escape(row.arm),
        number(row.tokens_per_s, ".1f"),
        number(row.speed_up, ".2f", "x"),
        number(row.total_ms, ".0f"),
        number(row.ttft_ms, ".0f"),
        *_draft_cells(row.drafts),
        identical(row),
    )


def _draft_cells(drafts: DraftMetrics | None) -> tuple[str, str, str, str]:
    if drafts is None or not drafts.num_draft_tokens:
        return (MISSING,) * 4
    return (
        number(drafts.acceptance_rate, ".0%"),
        number(drafts.mean_acceptance_length, ".2f"),
        str(drafts.num_accepted_tokens),
        str(drafts.num_wasted_tokens),
    )


def number(value: float | None, form: str, unit: str = "") -> str:
    """A figure, or a dash where there is none."""
    return MISSING if value is None else f"{value:{form}}{unit}"


def identical(row: Row) -> str:
    """`yes`, or how many are."""
    return "yes" if row.is_identical else f"no: {row.num_identical}/{row.num_answers}"
