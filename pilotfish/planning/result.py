"""A plan, as JSON holds it, and what it comes to; memory.py has the other kind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of one replica. Times in milliseconds from token to token of one sequence."""

    batch: int
    """Sequences that decode at once."""
    plain_token_ms: float
    best_k: int
    """Draft tokens of a round; 0: plain decoding is fastest."""
    token_ms: float
    """Time of a token with the best K."""
    speed_up: float
    """Speed-up of the best K over plain decoding."""
    tokens_per_s: float
    """Output of all sequences together."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """Lossy decoding by steps of reasoning: one sequence alone."""

    step_acceptance: float
    """Share of the drafter's steps that the target keeps."""
    token_ms: float
    speed_up: float
    """Speed-up over plain decoding."""


class AcceptanceRow(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts of this acceptance are worth in this batch of one replica."""

    acceptance: float
    """Chance of each draft token to be accepted, if those before it were."""
    batch: int
    best_k: int
    """As in BatchRow."""
    speed_up: float


class PlaceRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one drafter is worth in one place, at this distance and load."""

    one_way_ms: float
    """Time between the orchestrator and a replica, each way, with all that is done on it."""
    requests: int
    """Sequences that decode at once on a target replica."""
    drafter: str = ""
    """The profile's name for it."""
    place: str = "none"
    """"target", "pool", or "none": nobody drafts."""
    acceptance: tuple[float, ...] = ()
    """Acceptance by position, as the profile has it."""
    best_k: int = 0
    """As in BatchRow."""
    speed_up: float = 1.0
    """Tokens a second over those of plain decoding."""
    is_best: bool = False
    """Whether drafts should run here: the first within 3 % of the fastest, of none, target and pool."""


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet under the workload, simulated."""

    name: str
    num_targets: int
    num_drafters: int
    num_gpus: int
    """Machines where the profile has no GPUs."""
    rate: float
    """Requests per second that it gets."""
    capacity: float
    """Requests per second with which its mean time per token stays within the goal, by mean values."""
    first_token_ms: dict[str, float]
    """Time to first token by quantile: p50, p95, p99."""
    token_ms: dict[str, float]
    """Mean time per token of an answer, by quantile over answers."""
    mean_batch: float
    """Sequences that decode at once on a replica that is busy."""
    k_at_mean_batch: int
    meets_goals: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `pilotfish plan` finds."""

    date: str
    """UTC."""
    profile: str
    description: str
    conditions: dict[str, str]
    goals: str
    crossover_batch: int | None
    """The smallest batch from which on drafts do not pay; None: they pay up to the largest."""
    batches: list[BatchRow]
    steps: list[StepRow]
    """What steps of reasoning gain, by the share that is kept."""
    acceptances: list[AcceptanceRow]
    """Rows by acceptance, and within it by batch: whatever acceptance was asked for."""
    places: list[PlaceRow]
    """Where drafts should run, by distance and load; empty for a profile that lists no drafters."""
    fleets: list[FleetRow]
    """The cheapest that meet the goals, or the one that was asked for."""
    equal_gpus: list[FleetRow]
    """Fleets of as many GPUs each, scaled up with the load until they are equal to the last."""
    verdict: list[str]
    """Sentences."""


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
