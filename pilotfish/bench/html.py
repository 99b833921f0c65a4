"""The report as one HTML file that opens from disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from pilotfish.bench.arms import Variant
from pilotfish.bench.charts import Bar, Line, bar_chart, line_chart
from pilotfish.bench.metrics import Row
from pilotfish.bench.page import render_page
from pilotfish.bench.result import Result
from pilotfish.bench.tables import heading, identical

ACCEPTED_SERIES, WASTED_SERIES = 2, 5


def to_html(result: Result, variants: Mapping[str, Variant]) -> str:
    """The whole page; variants: what each of our own arms is, by its name."""
    helpers = {"identical": identical, "heading": heading}
    return render_page(
        Path(__file__).with_name("report.html.jinja"), result=result, charts=_charts(result, variants), **helpers
    )


def _charts(result: Result, variants: Mapping[str, Variant]) -> list[tuple[str, str, Markup]]:
    """(title, explanation, SVG); a chart without anything to show is left out."""
    charts = [
        (
            "Speed-up",
            f"Decoding speed over {result.baseline}, by category; the line is 1.",
            bar_chart(_speed_up_groups(result), reference=1.0),
        )
    ]
    by_length = _lines_by_length(result, variants)
    if by_length:
        chart = line_chart(by_length, x_label="draft tokens per round (K)", reference=1.0)
        charts.append(("Speed-up by draft length", "Over all categories.", chart))
    by_position = _lines_by_position(result.overall)
    if by_position:
        chart = line_chart(by_position, x_label="position in the draft")
        charts.append(("Acceptance by position", "Share of rounds in which the draft token there was accepted.", chart))
    drafts = _draft_bars(result.overall)
    if drafts:
        chart = bar_chart([("accepted and wasted draft tokens", drafts)])
        charts.append(("Draft tokens", "Per output token: accepted, then wasted.", chart))
    return [(title, text, Markup(svg)) for title, text, svg in charts]


def _speed_up_groups(result: Result) -> list[tuple[str, list[Bar]]]:
    arms = [arm for arm in result.arms if arm != result.baseline]
    groups = []
    for category in result.categories:
        rows = [(series, result.row(arm, category)) for series, arm in enumerate(arms)]
        bars = [
            Bar(row.arm, [(series, row.speed_up)], f"{row.speed_up:.2f}x")
            for series, row in rows
            if row.speed_up is not None
        ]
        groups.append((category, bars))
    return groups


def _lines_by_length(result: Result, variants: Mapping[str, Variant]) -> list[Line]:
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in result.overall:
        variant = variants.get(row.arm)
        if variant and variant.num_speculative_tokens is not None and row.speed_up is not None:
            points[variant.proposer].append((variant.num_speculative_tokens, row.speed_up))
    return [Line(proposer, sorted(values)) for proposer, values in points.items() if len(values) > 1]


def _lines_by_position(rows: list[Row]) -> list[Line]:
    return [
        Line(row.arm, list(enumerate(row.drafts.acceptance_per_position, start=1)))
        for row in rows
        if row.drafts is not None and row.drafts.acceptance_per_position
    ]


def _draft_bars(rows: list[Row]) -> list[Bar]:
    bars = []
    for row in rows:
        if row.drafts is not None and row.drafts.num_draft_tokens and row.num_tokens:
            accepted = row.drafts.num_accepted_tokens / row.num_tokens
            wasted = row.drafts.num_wasted_tokens / row.num_tokens
            segments = [(ACCEPTED_SERIES, accepted), (WASTED_SERIES, wasted)]
            bars.append(Bar(row.arm, segments, f"{accepted:.2f} + {wasted:.2f}"))
    return bars
