"""What a plan means, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.planning.result import BatchRow, FleetRow

_TIE = 0.02
"""Differences below this are the model's own error."""


def judge(
    profile: HardwareProfile,
    batches: Sequence[BatchRow],
    crossover_batch: int | None,
    fleets: Sequence[FleetRow],
    equal_gpus: Sequence[FleetRow],
) -> list[str]:
    """When drafts pay, the cheapest fleet, and what the drafters' GPUs would do as targets."""
    sentences = []
    if batches and batches[0].best_k:
        alone = batches[0]
        sentences.append(
            f"One sequence alone: {alone.best_k} draft tokens a round, {alone.simulated_speed_up:.2f}x plain decoding."
        )
        sentences.append(
            f"Drafts stop to pay at a batch of {crossover_batch}."
            if crossover_batch
            else f"Drafts pay up to the largest batch, {profile.max_sequences}."
        )
    unit = "GPUs" if profile.target_gpus else "machines"
    sentences += [_fleet_sentence(row, unit) for row in fleets]
    if equal_gpus:
        sentences.append(_equal_sentence(equal_gpus, unit))
        sentences += [_colocated_sentence(equal_gpus[0], row, unit) for row in equal_gpus[2:]]
    return sentences


def _fleet_sentence(row: FleetRow, unit: str) -> str:
    with_drafters = f" and {_count(row.num_drafters, 'drafter')}" if row.num_drafters else ""
    meets = "meet the goals" if row.meets_goals else "miss the goals"
    return (
        f"{row.name[0].upper()}{row.name[1:]}: {_count(row.num_targets, 'target')}{with_drafters} ({row.num_gpus} "
        f"{unit}) {meets} at {row.rate:g} requests/s."
    )


def _equal_sentence(rows: Sequence[FleetRow], unit: str) -> str:
    ours, plain = rows[0], rows[1]
    gain = plain.token_ms["p50"] / ours.token_ms["p50"] if ours.token_ms["p50"] else 1.0
    more = ours.capacity / plain.capacity if plain.capacity else float("inf")
    figures = f"{_times(gain)} in time per token (median), {_times(more)} in capacity within the goal"
    beginning = f"Equal {unit} ({ours.num_gpus} each, {ours.rate:g} requests/s): drafters apart against all as targets"
    if not ours.meets_goals and plain.meets_goals:
        return f"{beginning}: {figures}, but only the targets meet the goals. They would serve better as targets."
    if gain > 1 + _TIE and more > 1 - _TIE:
        return f"{beginning}: {figures}. The drafters earn their {unit}."
    if gain < 1 + _TIE and more < 1 + _TIE:
        return f"{beginning}: {figures}. They would serve better as targets."
    return f"{beginning}: {figures}. Latency and throughput disagree: choose by what is short."


def _colocated_sentence(ours: FleetRow, colocated: FleetRow, unit: str) -> str:
    gain = colocated.token_ms["p50"] / ours.token_ms["p50"] if ours.token_ms["p50"] else 1.0
    reason = " Sequences that are drafted for elsewhere get out of step ('if in step' above)." if gain < 1 else ""
    return (
        f"Drafters on the targets' own {unit}, if they fit: drafters apart have {_times(gain)} their speed per token "
        f"(median) and {_times(ours.capacity / colocated.capacity if colocated.capacity else 1.0)} their capacity."
        + reason
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
