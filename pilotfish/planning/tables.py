"""Plans on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.planning.memory import MemoryPlan
from pilotfish.planning.result import AcceptanceRow, BatchRow, FleetRow, PlaceRow, Plan, StepRow
from pilotfish.planning.steps import STEP_TOKENS
from pilotfish.types import BLOCK_SIZE

_QUANTILES = ("p50", "p95", "p99")
_FLEET_LINES: tuple[tuple[str, Callable[[FleetRow], str]], ...] = (
    ("target replicas", lambda row: str(row.num_targets)),
    ("draft replicas", lambda row: str(row.num_drafters or "none")),
    ("GPUs", lambda row: str(row.num_gpus)),
    ("requests/s", lambda row: f"{row.rate:g}"),
    ("most within ms/token goal", lambda row: f"{row.capacity:.3g}"),
    ("TTFT ms, p50 p95 p99", lambda row: _quantiles(row.first_token_ms, ".0f")),
    ("ms/token, p50 p95 p99", lambda row: _quantiles(row.token_ms, ".2f")),
    ("mean batch", lambda row: f"{row.mean_batch:.1f}"),
    ("draft tokens at it", lambda row: str(row.k_at_mean_batch or "off")),
    ("goals", lambda row: "[green]met[/]" if row.meets_goals else "[red]missed[/]"),
)


def show(plan: Plan, console: Console) -> None:
    """Conditions, tables, and what they mean at the end."""
    console.print(f"{plan.profile}: {plan.description}", soft_wrap=True, markup=False, style="bold")
    conditions = ", ".join(f"{name} {value}" for name, value in plan.conditions.items())
    console.print(conditions, style="dim", soft_wrap=True, markup=False)
    console.print(f"goals: {plan.goals}", style="dim", soft_wrap=True, markup=False)
    console.print(_batch_table(plan.batches))
    console.print(_step_table(plan.steps))
    console.print(_acceptance_table(plan.acceptances))
    if plan.places:
        console.print(_place_table(plan.places))
        acceptances = {row.drafter: ", ".join(f"{rate:g}" for rate in row.acceptance) for row in plan.places}
        accepted = "; ".join(f"{drafter} {rates}" for drafter, rates in acceptances.items() if drafter)
        console.print(f"acceptance by the profile: {accepted}", style="dim", soft_wrap=True, markup=False)
    console.print(_fleet_table("Fleets", plan.fleets))
    if plan.equal_gpus:
        console.print(_fleet_table("Equal GPUs, at so many times the load that they come out even", plan.equal_gpus))
    for sentence in plan.verdict:
        console.print(f"- {sentence}", soft_wrap=True, markup=False)


def _batch_table(rows: Sequence[BatchRow]) -> Table:
    table = Table(title="By batch of one replica with a drafter of its own", title_justify="left", box=None)
    for name in ("batch", "plain\nms/token", "best\nK", "drafted\nms/token", "speed-up\n", "tokens/s\n"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.batch),
            f"{row.plain_token_ms:.2f}",
            str(row.best_k) if row.best_k else "off",
            f"{row.token_ms:.2f}",
            f"{row.speed_up:.2f}x",
            f"{row.tokens_per_s:.0f}",
        )
    return table


def _step_table(rows: Sequence[StepRow]) -> Table:
    table = Table(title="Lossy: steps of reasoning, alone", title_justify="left", box=None)
    for name in (f"steps of {STEP_TOKENS}\ntokens kept", "ms/token\n", "speed-up\n"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(f"{row.step_acceptance:.0%}", f"{row.token_ms:.2f}", f"{row.speed_up:.2f}x")
    return table


def _acceptance_table(rows: Sequence[AcceptanceRow]) -> Table:
    """Two columns for each batch."""
    table = Table("acceptance\n", title="By acceptance", title_justify="left", box=None)
    for batch in sorted({row.batch for row in rows}):
        for name in (f"batch {batch}\nbest K", "\nspeed-up"):
            table.add_column(name, justify="right", no_wrap=True)
    for acceptance, group in groupby(rows, lambda row: row.acceptance):
        cells = ((str(row.best_k or "off"), f"{row.speed_up:.2f}x") for row in group)
        table.add_row(f"{acceptance:g}", *(text for pair in cells for text in pair))
    return table


def _place_table(rows: Sequence[PlaceRow]) -> Table:
    """A line for each distance and load, a column for each place."""
    title = "Where drafts should run (*): best K and speed-up over plain decoding"
    table = Table(title=title, title_justify="left", box=None)
    lines = [list(group) for _, group in groupby(rows, lambda row: (row.one_way_ms, row.requests))]
    places = (f"{escape(row.drafter)}\nin the {row.place}" if row.drafter else "no drafts\n" for row in lines[0])
    for name in ("ms each\nway", "requests\n", *places):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(f"{line[0].one_way_ms:g}", str(line[0].requests), *(_place_cell(row) for row in line))
    return table


def _place_cell(row: PlaceRow) -> str:
    text = f"{row.best_k or 'off'} {row.speed_up:.2f}x" if row.drafter else f"{row.speed_up:.2f}x"
    return f"[bold]{text} *[/]" if row.is_best else f"{text}  "


def _fleet_table(title: str, rows: Sequence[FleetRow]) -> Table:
    """A column for each fleet, so that eighty characters hold four."""
    table = Table("", title=title, title_justify="left", box=None)
    for row in rows:
        table.add_column(row.name, justify="right")
    for name, text in _FLEET_LINES:
        table.add_row(name, *(text(row) for row in rows))
    return table


def _quantiles(values: dict[str, float], form: str) -> str:
    return " ".join(format(values[name], form) for name in _QUANTILES)


def show_memory(plan: MemoryPlan, console: Console) -> None:
    """The table, and what it stands on."""
    billions = plan.num_parameters / 1e9
    console.print(f"{plan.model}: {plan.architecture}, {billions:.2f} billion parameters", style="bold", markup=False)
    console.print(
        f"GPUs of {plan.gpu_memory_gb:g} GB, of which {plan.usable_share:.0%} for weights and KV cache (bfloat16, "
        f"blocks of {BLOCK_SIZE} tokens)",
        style="dim",
        markup=False,
    )
    if plan.drafter is not None:
        beside = f"{plan.drafter.weight_bytes / 1e9:.2f} GB, {plan.drafter.share:.1%} of the target's in bfloat16"
        console.print(f"Drafter {plan.drafter.drafter}: {beside}", markup=False)
    if feature_bytes := plan.rows[0].feature_bytes_per_token:
        console.print(
            f"Rank 0 keeps {feature_bytes:,} bytes more of each token: features for a head in the draft service",
            markup=False,
        )
    table = Table(box=None)
    for name in ("weights", "GPUs\n(TP)", "weights\nGB/GPU", "KV cache\nbytes/token/GPU", "KV blocks\n", "tokens\n"):
        table.add_column(name, justify="left" if name == "weights" else "right", no_wrap=True)
    for row in plan.rows:
        table.add_row(
            row.weights,
            str(row.num_ranks),
            f"{row.weight_bytes / 1e9:.2f}",
            f"{row.kv_bytes_per_token:,}",
            f"{row.num_kv_blocks:,}" if row.num_kv_blocks else "does not fit",
            f"{row.num_kv_tokens:,}" if row.num_kv_blocks else "",
        )
    console.print(table)
