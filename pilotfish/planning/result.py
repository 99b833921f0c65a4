"""A plan, as JSON holds it; memory.py has the other kind."""

from __future__ import annotations

import msgspec

from pilotfish.planning.memory import MemoryPlan


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of one replica. Times in milliseconds from token to token of one sequence."""

    batch: int
    """Sequences that decode at once."""
    plain_token_ms: float
    best_k: int
    """Draft tokens of a round; 0: plain decoding is fastest."""
    token_ms: float
    """With the best K."""
    speed_up: float
    """Over plain."""
    tokens_per_s: float
    """Of all sequences together."""
    speed_up_by_k: dict[int, float]
    """For some fixed K."""


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
    """By quantile: p50, p95, p99."""
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
    fleets: list[FleetRow]
    """The cheapest that meet the goals, or the one that was asked for."""
    equal_gpus: list[FleetRow]
    """As many GPUs each, scaled up with the load until they are equal to the last."""
    verdict: list[str]
    """Sentences."""


def to_json(plan: Plan | MemoryPlan) -> str:
    """Indented, for programs."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1).decode()
