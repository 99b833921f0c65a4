"""A plan as one HTML file with plots that opens from disk."""

from __future__ import annotations

from pathlib import Path

import jinja2
from markupsafe import Markup

from pilotfish.bench.tables import number
from pilotfish.planning.charts import Bar, Line, bar_chart, line_chart
from pilotfish.planning.result import FleetRow, Plan


def to_html(plan: Plan) -> str:
    """The whole page."""
    by_batch = line_chart(_speed_ups(plan), x_label="sequences that decode at once", reference=1.0, is_log_x=True)
    by_fleet = bar_chart(_token_bars(plan.equal_gpus or plan.fleets))
    charts = [
        ("Speed-up by batch", "Over plain decoding of the same batch, on a logarithmic axis.", Markup(by_batch)),
        ("Time per token", "Median and 95th percentile over answers, ms.", Markup(by_fleet)),
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["number"] = number
    return environment.get_template("plan.html.jinja").render(result=plan, charts=charts)


def _speed_ups(plan: Plan) -> list[Line]:
    lines = [Line("best K", [(row.batch, row.speed_up) for row in plan.batches])]
    for k in plan.batches[0].speed_up_by_k:
        lines.append(Line(f"K = {k}", [(row.batch, row.speed_up_by_k[k]) for row in plan.batches]))
    return lines


def _token_bars(rows: list[FleetRow]) -> list[tuple[str, list[Bar]]]:
    return [
        (name, [Bar(row.name, [(series, row.token_ms[name])], f"{row.token_ms[name]:.2f} ms") for row in rows])
        for series, name in enumerate(("p50", "p95"))
    ]
