"""The report as one HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from pilotfish.bench.charts import Line, line_chart
from pilotfish.bench.load.percentiles import Percentiles
from pilotfish.bench.load.point import LoadPoint
from pilotfish.bench.load.result import LoadResult
from pilotfish.bench.load.tables import remarks
from pilotfish.bench.page import render_page

Figure = Callable[[LoadPoint], float | None]

_X_LABELS = {"concurrency": "requests in flight", "rate": "requests due per second", "trace": "times the trace's speed"}
_QUANTILES = ("p50", "p90", "p95", "p99")


def to_html(result: LoadResult) -> str:
    """The whole page."""
    kinds = list(dict.fromkeys(point.load_kind for point in result.points))
    return render_page(
        Path(__file__).with_name("report.html.jinja"),
        result=result,
        charts=[chart for kind in kinds for chart in _charts(result, kind)],
        remarks=remarks(result),
        quantiles=_QUANTILES,
    )


def _charts(result: LoadResult, kind: str) -> list[tuple[str, str, Markup]]:
    """(title, explanation, SVG) over the loads of a kind; a chart without anything to show is left out."""
    figures: list[tuple[str, str, list[tuple[str, Figure]]]] = [
        ("Throughput", "Output tokens per second.", [("", lambda point: point.output_tokens_per_s)]),
        ("Requests answered", "Per second.", [("", lambda point: point.achieved_rps)]),
        ("Goodput", f"Good answers per second: {result.slo}.", [("", lambda point: point.goodput_rps)]),
        (
            f"Throughput over {result.baseline}",
            "The line is 1.",
            [("", lambda point: point.throughput_ratio)],
        ),
        ("Time to first token", "Milliseconds from when the request was due.", _spread(lambda point: point.ttft_ms)),
        ("Inter-token latency", "Milliseconds between arrivals of tokens.", _spread(lambda point: point.itl_ms)),
        ("End to end", "Milliseconds until the last token.", _spread(lambda point: point.e2e_ms)),
    ]
    charts = []
    for title, text, named in figures:
        lines = [line for name, figure in named for line in _lines(result, kind, name, figure)]
        if lines:
            reference = 1.0 if title.startswith("Throughput over") else None
            chart = line_chart(lines, x_label=_X_LABELS[kind], reference=reference, is_log_x=True)
            charts.append((title, text, Markup(chart)))
    return charts


def _lines(result: LoadResult, kind: str, name: str, figure: Figure) -> list[Line]:
    """One for each mode that has the figure."""
    lines = []
    for mode in result.modes:
        points = [point for point in result.points if (point.mode, point.load_kind) == (mode, kind)]
        values = sorted((point.load_value, value) for point in points if (value := figure(point)) is not None)
        if values:
            lines.append(Line(f"{mode} {name}".strip(), values))
    return lines


def _spread(percentiles: Callable[[LoadPoint], Percentiles | None]) -> list[tuple[str, Figure]]:
    def quantile(name: str) -> Figure:
        def value(point: LoadPoint) -> float | None:
            found = percentiles(point)
            return float(getattr(found, name)) if found is not None else None

        return value

    return [(name, quantile(name)) for name in ("p50", "p99")]
