"""What a running service measured, on the terminal. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from pilotfish.examine.service.answers import ServiceMeasured
from pilotfish.examine.service.fleet import Fleet

_MISSING = (
    "The target's weights are not on this machine: acceptance of other drafters, predicted tokens/s, faults and advice "
    "are left out. Run this where they are, or name their folder (--set target.model=FOLDER)."
)
_LEAST_SAME = 0.95
"""Share of same choices below which the service runs another model. The default target in int4 chooses 98 % as without
(two cores, 425 tokens)."""


def show_service(measured: ServiceMeasured, console: Console) -> None:
    """What came of the prompts, what the controller knows, and what is left out."""
    console.print()
    console.print(_answers(measured))
    console.print(_outcome(measured), soft_wrap=True)
    for reason, count in measured.reasons.items():
        console.print(
            f"Drafts were off or limited in {count} of {measured.num_answers} answers: {reason}.", soft_wrap=True
        )
    if measured.same_choices is not None and measured.same_choices < _LEAST_SAME:
        console.print(
            f"The target here would have chosen only {measured.same_choices:.0%} of its greedy tokens: other weights, "
            "another adapter or coarser rounding than the service's. What is said of drafters holds for the one here.",
            soft_wrap=True,
        )
    if measured.fleet is None:
        console.print(f"What its controller has measured is left out: {measured.fleet_problem}.", soft_wrap=True)
    else:
        _show_fleet(measured.fleet, console)
    if measured.target_missing:
        console.print(_MISSING, soft_wrap=True)


def _outcome(measured: ServiceMeasured) -> str:
    rates = f"{measured.tokens_per_s:.1f} tokens/s an answer, plainly {measured.plain_tokens_per_s:.1f}"
    gain = "" if measured.speed_up is None else f": {measured.speed_up:.2f}x of greedy answers"
    if not measured.num_draft_tokens:
        return f"The service drafted nothing for these prompts. {rates}."
    return f"Measured, one request at a time: {rates}{gain}."


def _answers(measured: ServiceMeasured) -> Table:
    places = len(measured.acceptance)
    columns = (*map(str, range(1, places + 1)), "tokens a round")
    table = _table(f"{measured.address}, Pilotfish {measured.version}, {measured.dtype}: acceptance as served", columns)
    tokens = "" if measured.tokens_per_round is None else f"{measured.tokens_per_round:.2f}"
    table.add_row(f"{measured.num_answers} answers", *_cells(measured.acceptance), tokens)
    return table


def _show_fleet(fleet: Fleet, console: Console) -> None:
    defaults = fleet.defaults
    places = max((len(state.acceptance) for state in fleet.states), default=0)
    columns = ("drafter", "state", "K", "expected", "measured", *map(str, range(1, places + 1)))
    table = _table("What its controller has measured, of all requests", columns)
    for state in fleet.states:
        gains = ("" if gain is None else f"{gain:.2f}x" for gain in (state.expected_gain, state.measured_gain))
        length = str(state.num_draft_tokens or "")
        table.add_row(state.replica_id, state.proposer, state.state, length, *gains, *_cells(state.acceptance))
    if fleet.states:
        console.print(table)
    kinds = ", ".join(f"{kind.kind} {kind.num_accepted_tokens / kind.num_draft_tokens:.0%}" for kind in fleet.kinds)
    if kinds:
        console.print(f"Draft tokens accepted since its start, by kind of request: {kinds}.", soft_wrap=True)
    console.print(
        f"By default: mode {defaults.mode}, proposer {defaults.proposer}, "
        f"{defaults.num_speculative_tokens} draft tokens.",
        soft_wrap=True,
    )
    if defaults.mode == "off":
        console.print("Speculation is off there: set orchestrator.speculation.mode to auto to draft.", soft_wrap=True)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="left" if column in ("drafter", "state") else "right")
    return table


def _cells(rates: Sequence[float]) -> list[str]:
    return [f"{rate:.2f}" for rate in rates]
