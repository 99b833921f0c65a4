"""The plan: what drafting gains by batch, the fleets that goals need, and what their GPUs would do otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pilotfish.errors import ConfigError
from pilotfish.planning.draft_assumptions import Placement
from pilotfish.planning.fleet import Goals, quantile
from pilotfish.planning.places import place_rows
from pilotfish.planning.planner import Fleet, Planner
from pilotfish.planning.result import AcceptanceRow, BatchRow, FleetRow, Plan, judge
from pilotfish.planning.steps import step_rows

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_ACCEPTANCES, _BATCHES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), (1, 8, 32)
"""What the table by acceptance shows."""
_SPARE = 0.01
"""Share of the GPUs that no target replica can be made of, for a fleet of equal cost to be called one."""
_NAMES = {
    Placement.SEPARATE: "drafters apart",
    Placement.NONE: "all targets, plain",
    Placement.COLOCATED: "drafters on the targets' GPUs",
}


def make_plan(planner: Planner, goals: Goals, fleet: Fleet | None = None) -> Plan:
    """The plan. fleet: judge this one; None: find the cheapest that meets the goals.

    Raises ConfigError where no fleet meets them.
    """
    rates = planner.rates(Placement.SEPARATE)
    notes: list[str] = []
    fleets = [fleet] if fleet is not None else _sized(planner, goals, notes)
    rows = [_row(planner, goals, one) for one in fleets]
    equal = _equal_gpus(planner, goals, fleets[0])
    batches = _batch_rows(planner)
    unit = "GPUs" if planner.profile.target_gpus else "machines"
    return Plan(
        date=datetime.now(UTC).date().isoformat(),
        profile=planner.profile.name,
        description=planner.profile.description,
        conditions=_conditions(planner),
        goals=str(goals),
        crossover_batch=rates.crossover_batch,
        batches=batches,
        steps=list(step_rows(rates.model, rates.num_draft_tokens[1])),
        acceptances=_acceptance_rows(planner),
        places=place_rows(planner),
        fleets=rows,
        equal_gpus=equal,
        verdict=[*judge(batches, rates.crossover_batch, rows, equal, unit), *notes],
    )


def _batch_rows(planner: Planner) -> list[BatchRow]:
    """Rows by powers of two, up to the most sequences that a replica holds."""
    rates = planner.rates(Placement.SEPARATE)
    model = rates.model
    limit = planner.profile.max_sequences
    sizes = [1 << power for power in range(limit.bit_length()) if 1 << power < limit] + [limit]
    return [
        BatchRow(
            batch=batch,
            plain_token_ms=model.token_s(batch, 0) * 1e3,
            best_k=(best_k := rates.num_draft_tokens[batch]),
            token_ms=rates.token_s[batch] * 1e3,
            speed_up=model.speed_up(batch, best_k),
            tokens_per_s=batch / rates.token_s[batch],
        )
        for batch in sizes
    ]


def _acceptance_rows(planner: Planner) -> list[AcceptanceRow]:
    rows = []
    for acceptance in _ACCEPTANCES:
        model = planner.model(replace(planner.drafting, acceptance=(acceptance,)))
        for batch in (batch for batch in _BATCHES if batch <= planner.profile.max_sequences):
            best_k = model.best_k(batch)
            speed_up = model.speed_up(batch, best_k)
            rows.append(AcceptanceRow(acceptance=acceptance, batch=batch, best_k=best_k, speed_up=speed_up))
    return rows


def _sized(planner: Planner, goals: Goals, notes: list[str]) -> list[Fleet]:
    """The cheapest fleets, the one with drafters first; without it where nothing drafts."""
    if not planner.rates(Placement.SEPARATE).num_draft_tokens[1]:
        notes.append("Drafts never pay here, not even for one sequence alone: plan without drafters.")
        return [planner.smallest(Placement.NONE, goals)]
    fleets = [planner.smallest(Placement.SEPARATE, goals)]
    try:
        fleets.append(planner.smallest(Placement.NONE, goals))
    except ConfigError as error:
        notes.append(f"Without drafters {error}".partition(". Ask for")[0] + ".")
    return fleets


def _equal_gpus(planner: Planner, goals: Goals, fleet: Fleet) -> list[FleetRow]:
    """The fleet, all its GPUs as targets, and these with drafters on the same GPUs."""
    if fleet.placement is not Placement.SEPARATE:
        return []
    target_gpus, num_gpus = planner.num_gpus(Fleet(Placement.NONE, 1)), planner.num_gpus(fleet)
    scale = next(
        factor for factor in itertools.count(1) if factor * num_gpus % target_gpus <= _SPARE * factor * num_gpus
    )
    scaled = planner.scaled(scale) if scale > 1 else planner
    ours = replace(fleet, num_targets=scale * fleet.num_targets, num_drafters=scale * fleet.num_drafters)
    num_targets = scale * num_gpus // target_gpus
    others = [Fleet(placement, num_targets) for placement in (Placement.NONE, Placement.COLOCATED)]
    return [_row(scaled, goals, one) for one in (ours, *others)]


def _row(planner: Planner, goals: Goals, fleet: Fleet) -> FleetRow:
    outcome, rates = planner.simulate(fleet), planner.rates_of(fleet)
    return FleetRow(
        name=_NAMES[fleet.placement],
        num_targets=fleet.num_targets,
        num_drafters=fleet.num_drafters,
        num_gpus=planner.num_gpus(fleet),
        rate=planner.workload.rate,
        capacity=fleet.num_targets * rates.capacity(planner.workload, goals.token_s),
        first_token_ms=_quantiles_ms(outcome.first_token_s),
        token_ms=_quantiles_ms(outcome.token_s),
        mean_batch=outcome.mean_decoding,
        k_at_mean_batch=rates.num_draft_tokens[max(1, round(outcome.mean_decoding))],
        meets_goals=goals.are_met(outcome),
    )


def _quantiles_ms(values_s: Sequence[float]) -> dict[str, float]:
    return {name: quantile(values_s, share) * 1e3 for name, share in _QUANTILES.items()}


def _conditions(planner: Planner) -> dict[str, str]:
    drafting, workload = planner.drafting, planner.workload
    rates = ", ".join(f"{rate:g}" for rate in drafting.acceptance)
    return {
        "acceptance": rates + (" by position" if len(drafting.acceptance) > 1 else " a token"),
        "draft tokens": f"at most {drafting.max_draft_tokens}",
        "drafting ahead": f"up to {drafting.ahead_tokens} tokens a round" if drafting.ahead_tokens else "off",
        "rate": f"{workload.rate:g} requests/s",
        "prompt": f"{workload.mean_prompt_tokens:.0f} tokens on average",
        "output": f"{workload.mean_output_tokens:.0f} tokens on average",
        "round trip": f"{planner.round_trip_s * 1e3:g} ms",
    }
