"""Whether this machine has room for the pools, checked before anything starts. Ray itself would wait forever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.errors import ConfigError

_SLACK = 1e-6
"""Ten shares of 0.1 are one."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pool asks of the machine."""

    pool: str
    num_replicas: int
    num_cpus: float
    """Cores of one replica."""
    num_gpus: float
    is_autoscaled: bool = False


def check_room(demands: Sequence[Demand], num_cpus: float, num_gpus: float) -> None:
    """Raises ConfigError, naming what to change, unless all replicas of all pools fit on the machine at once."""
    free = Free(num_cpus, num_gpus)
    # GPUs first: they are what is short.
    ordered = sorted(demands, key=lambda each: each.num_gpus, reverse=True)
    problems = [problem for each in ordered if (problem := _place(each, free))]
    if problems:
        raise ConfigError("; ".join(problems))


def demand(options: Mapping[str, Any]) -> Demand:
    """What a deployment's options ask for, in Serve's words. Of an autoscaled pool what it starts with."""
    scaling = options.get("autoscaling_config")
    count = scaling["initial_replicas"] if scaling else options["num_replicas"]
    actor = options["ray_actor_options"]
    bundles = options.get("placement_group_bundles") or [{"CPU": actor["num_cpus"], "GPU": actor["num_gpus"]}]
    num_cpus, num_gpus = (sum(bundle.get(name, 0.0) for bundle in bundles) for name in ("CPU", "GPU"))
    return Demand(options["name"], count, num_cpus, num_gpus, is_autoscaled=bool(scaling))


class Free:
    """What is left of the machine while replicas are placed."""

    def __init__(self, num_cpus: float, num_gpus: float) -> None:
        self._cpus = num_cpus
        # One by one, because a share is of one GPU: three replicas of 0.6 do not fit on two.
        self._gpus = [1.0] * int(num_gpus)

    def take(self, num_cpus: float, num_gpus: float) -> bool:
        """Take a replica's part; False, and nothing taken, where it does not fit."""
        count, share = (1, num_gpus) if num_gpus < 1 else (round(num_gpus), 1.0)
        # The fullest GPU that has room is shared first.
        having = sorted((left, index) for index, left in enumerate(self._gpus) if left + _SLACK >= share)
        if (num_gpus > 0 and len(having) < count) or self._cpus + _SLACK < num_cpus:
            return False
        self._cpus -= num_cpus
        for _, index in having[:count]:
            self._gpus[index] -= share
        return True


def _place(demand: Demand, free: Free) -> str:
    """Take the demand out of what is `free`; what is wrong, or empty."""
    num_placed = 0
    while num_placed < demand.num_replicas and free.take(demand.num_cpus, demand.num_gpus):
        num_placed += 1
    if num_placed == demand.num_replicas:
        return ""
    each = f"{demand.num_cpus:g} CPU" + (f", {demand.num_gpus:g} GPU" if demand.num_gpus else "")
    replicas = "1 replica" if demand.num_replicas == 1 else f"{demand.num_replicas} replicas"
    section, settings = f"deployment.{demand.pool}", []
    if demand.num_replicas > 1:
        settings += [f"{demand.pool}.num_replicas"]
        settings += [f"{section}.autoscaling.min_replicas"] if demand.is_autoscaled else []
    settings += [f"{section}.{'num_gpus' if demand.num_gpus else 'num_cpus'}"]
    return (
        f"the {demand.pool} pool wants {replicas} of {each} each, and this machine has room for {num_placed} beside "
        f"the other pools: lower {' or '.join(settings)}"
    )
