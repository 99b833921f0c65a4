"""A plan as one HTML file with plots that opens from disk."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from pilotfish.bench.charts import Bar, Line, bar_chart, line_chart
from pilotfish.bench.page import render_page
from pilotfish.planning.result import FleetRow, Plan


def to_html(plan: Plan) -> str:
    """The whole page."""
    return render_page(Path(__file__).with_name("plan.html.jinja"), result=plan, charts=_charts(plan))


def _charts(plan: Plan) -> list[tuple[str, str, Markup]]:
    """(title, explanation, SVG)."""
    charts = [
        (
            "Speed-up by batch",
            "Over plain decoding of the same batch, on a logarithmic axis; fixed K by the closed formula.",
            line_chart(_speed_ups(plan), x_label="sequences that decode at once", reference=1.0, is_log_x=True),
        ),
        (
            "Tokens per second of one replica",
            "Of all its sequences together.",
            line_chart(_throughputs(plan), x_label="sequences that decode at once", is_log_x=True),
        ),
    ]
    rows = plan.equal_gpus or plan.fleets
    charts.append(("Time per token", "Median and 95th percentile over answers, ms.", bar_chart(_token_bars(rows))))
    return [(title, text, Markup(svg)) for title, text, svg in charts]


def _speed_ups(plan: Plan) -> list[Line]:
    lines = [
        Line("best K, simulated", [(row.batch, row.simulated_speed_up) for row in plan.batches]),
        Line("best K, in step", [(row.batch, row.speed_up) for row in plan.batches]),
    ]
    for k in plan.batches[0].speed_up_by_k:
        lines.append(Line(f"K = {k}, in step", [(row.batch, row.speed_up_by_k[k]) for row in plan.batches]))
    return lines


def _throughputs(plan: Plan) -> list[Line]:
    return [
        Line("best K, simulated", [(row.batch, row.tokens_per_s) for row in plan.batches]),
        Line("plain", [(row.batch, row.batch / row.plain_token_ms * 1e3) for row in plan.batches]),
    ]


def _token_bars(rows: list[FleetRow]) -> list[tuple[str, list[Bar]]]:
    return [
        (name, [Bar(row.name, [(series, row.token_ms[name])], f"{row.token_ms[name]:.2f} ms") for row in rows])
        for series, name in enumerate(("p50", "p95"))
    ]
