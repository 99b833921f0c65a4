"""An examination on the terminal. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.result import DrafterResult, Examination
from pilotfish.examine.service.tables import show_service

_SHARED = (
    "A draft service has the target's processors here: times of both are added. Of one elsewhere, name the address: "
    "--set 'orchestrator.draft_addresses=[\"HOST:PORT\"]'."
)
_BAR = "█"
_BAR_WIDTH = 10
_WIDE = 100
"""Columns of a terminal that has room for curves beside the figures."""
_HEIGHTS = "▁▂▃▄▅▆▇█"


def show(examination: Examination, console: Console) -> None:
    """Acceptance, speeds and findings of each drafter, then what to configure."""
    how = ""
    if examination.is_recent:
        how = " of recent requests"
    elif examination.temperature:
        how = f", half of them at temperature {examination.temperature:g}"
    console.print(
        f"[bold]{examination.target}[/], {examination.machine}: {examination.num_answers} answers{how}, "
        f"{examination.num_tokens} tokens, {examination.took_s:.0f} s"
    )
    if examination.service is not None:
        show_service(examination.service, console)
    if not examination.drafters:
        return
    for drafter in examination.drafters:
        console.print()
        console.print(_acceptance(drafter))
        console.print(_speeds(drafter, with_curve=console.width >= _WIDE))
        if drafter.shares_processors:
            console.print(_SHARED, soft_wrap=True)
        if not drafter.findings:
            console.print("No fault found.")
        for finding in drafter.findings:
            console.print(f"[bold yellow]{finding.cause}[/]: {finding.evidence}. {finding.advice}", soft_wrap=True)
    console.print()
    console.print(_advice(examination), soft_wrap=True)


def _acceptance(drafter: DrafterResult) -> Table:
    table = _table(f"{drafter.name}: acceptance, by place in the draft")
    num_places = len(drafter.overall.rates)
    for column in ("answers", "", *map(str, range(1, num_places + 1)), "expects", "tokens a round"):
        table.add_column(column, justify="left" if column in ("answers", "") else "right")
    rows = {"all": drafter.overall, "greedy": drafter.greedy, "sampled": drafter.sampled, **drafter.by_category}
    for name, acceptance in rows.items():
        if acceptance is not None and acceptance.rates:
            table.add_row(name, *_cells(acceptance, num_places), end_section=name == "sampled")
    return table


def _cells(acceptance: Acceptance, num_places: int) -> list[str]:
    rates = [f"{rate:.2f}" for rate in acceptance.rates]
    best = acceptance.tokens_per_round[-1]
    sure = "" if acceptance.confidence is None else f"{acceptance.confidence:.2f}"
    bar = _BAR * round(_BAR_WIDTH * acceptance.rates[0])
    return [bar.ljust(_BAR_WIDTH), *rates, *[""] * (num_places - len(rates)), sure, f"{best:.2f}"]


def _table(title: str) -> Table:
    """Narrow enough for the 80 columns of a usual terminal."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)


def _speeds(drafter: DrafterResult, *, with_curve: bool) -> Table:
    table = _table(f"{drafter.name}: predicted tokens/s of all requests, by draft length")
    longest = max(len(speed.by_draft_tokens) for speed in drafter.speeds)
    curves = [""] if with_curve else []
    for column in ("requests", "drafts", "plain", *map(str, range(1, longest)), *curves, "best", "speed-up"):
        table.add_column(column, justify="left" if column in ("drafts", "") else "right", no_wrap=True)
    for speed in drafter.speeds:
        best = f"K = {speed.num_draft_tokens}" if speed.num_draft_tokens else "off"
        ends = [best, f"{speed.speed_up:.2f}x"]
        both = (*speed.by_draft_tokens, *speed.by_depth_of_trees)
        cells = _rates(speed.by_draft_tokens, -1 if speed.is_tree else speed.num_draft_tokens, longest)
        curve = [_curve(speed.by_draft_tokens, min(both), max(both))] if with_curve else []
        table.add_row(str(speed.num_requests), "chains", *cells, *curve, *([] if speed.is_tree else ends))
        if speed.by_depth_of_trees not in ((), speed.by_draft_tokens):
            _, *cells = _rates(speed.by_depth_of_trees, speed.num_draft_tokens if speed.is_tree else -1, longest)
            curve = [_curve(speed.by_depth_of_trees, min(both), max(both))] if with_curve else []
            table.add_row("", "trees", "", *cells, *curve, *(ends if speed.is_tree else []))
        if speed.by_remote_draft_tokens:
            _, *cells = _rates(speed.by_remote_draft_tokens, -1, longest)
            table.add_row("", "remote", "", *cells)
    return table


def _rates(rates: Sequence[float], best: int, longest: int) -> list[str]:
    cells = [f"[bold]{rate:.0f}[/]" if length == best else f"{rate:.0f}" for length, rate in enumerate(rates)]
    return [*cells, *[""] * (longest - len(cells))]


def _curve(rates: Sequence[float], least: float, most: float) -> str:
    """A column for each rate, from the least that is shown up to the most."""
    share = (len(_HEIGHTS) - 1) / (most - least) if most > least else 0.0
    return "".join(_HEIGHTS[round(share * (rate - least))] for rate in rates)


def _advice(examination: Examination) -> str:
    advice = examination.advice
    if not advice.drafter:
        return "[bold]None of them pays on this machine: decode plainly.[/]"
    lengths = ", ".join(f"K = {k} at {load}" for load, k in advice.num_draft_tokens.items() if k)
    off = f"; off from {advice.off_from} requests on" if advice.off_from else ""
    return f"[bold]{advice.drafter}[/]: {lengths} requests{off}."
