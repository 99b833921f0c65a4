"""What a plan means, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.planning.result import BatchRow, FleetRow

_TIE = 0.05
"""Differences below this are the model's own error (docs/planning.md)."""


def judge(
    batches: Sequence[BatchRow],
    crossover_batch: int | None,
    fleets: Sequence[FleetRow],
    equal_gpus: Sequence[FleetRow],
    unit: str,
) -> list[str]:
    """When drafts pay, the cheapest fleet, and what the drafters' GPUs would do as targets.

    unit: what fleets are counted in, "GPUs" or "machines".
    """
    sentences = []
    if batches and batches[0].best_k:
        k, speed_up = batches[0].best_k, batches[0].speed_up
        sentences.append(f"One sequence alone: {k} draft tokens a round, {speed_up:.2f}x plain decoding.")
        end = f"stop to pay at a batch of {crossover_batch}" if crossover_batch else "pay up to the largest batch"
        sentences.append(f"Drafts {end}.")
    sentences += [_fleet_sentence(row, unit) for row in fleets]
    if equal_gpus:
        sentences.append(_equal_sentence(equal_gpus[0], equal_gpus[1], unit))
        sentences += [_colocated_sentence(equal_gpus[0], row, unit) for row in equal_gpus[2:]]
    return sentences


def _fleet_sentence(row: FleetRow, unit: str) -> str:
    with_drafters = f" and {_count(row.num_drafters, 'drafter')}" if row.num_drafters else ""
    meets = "meet the goals" if row.meets_goals else "miss the goals"
    return (
        f"{row.name[0].upper()}{row.name[1:]}: {_count(row.num_targets, 'target')}{with_drafters} ({row.num_gpus} "
        f"{unit}) {meets} at {row.rate:g} requests/s."
    )


def _equal_sentence(ours: FleetRow, plain: FleetRow, unit: str) -> str:
    faster = _faster(ours, plain)
    if not ours.meets_goals and plain.meets_goals:
        conclusion = "Only the targets meet the goals: they would serve better as targets."
    elif faster > 1 + _TIE and ours.capacity > (1 - _TIE) * plain.capacity:
        conclusion = f"The drafters earn their {unit}."
    elif faster < 1 + _TIE and ours.capacity < (1 + _TIE) * plain.capacity:
        conclusion = "They would serve better as targets."
    else:
        conclusion = "Latency and throughput disagree: choose by what is short."
    return (
        f"Equal {unit} ({ours.num_gpus} each, {ours.rate:g} requests/s): drafters apart against all as targets: "
        f"{faster:.2f}x in time per token (median), {_capacities(ours, plain)}. {conclusion}"
    )


def _colocated_sentence(ours: FleetRow, colocated: FleetRow, unit: str) -> str:
    faster = _faster(ours, colocated)
    reason = " Drafts from elsewhere come over a network, and wait for each other." if faster < 1 else ""
    return (
        f"Drafters on the targets' own {unit}, if they fit: drafters apart have {faster:.2f}x their speed per token "
        f"(median), {_capacities(ours, colocated)}.{reason}"
    )


def _faster(ours: FleetRow, theirs: FleetRow) -> float:
    return theirs.token_ms["p50"] / ours.token_ms["p50"] if ours.token_ms["p50"] else 1.0


def _capacities(ours: FleetRow, theirs: FleetRow) -> str:
    return f"and serve {ours.capacity:.3g} against {theirs.capacity:.3g} requests/s within the goal"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
