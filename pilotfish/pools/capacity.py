"""Whether a cluster has room for the pools, told before anything starts. Ray itself would wait forever."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.errors import ConfigError

_SLACK = 1e-6
"""Ten shares of 0.1 are one."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster."""

    resources: Mapping[str, float]
    """In Ray's names: CPU, GPU, and custom ones. All there are, used or not."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pool asks of the cluster."""

    pool: str
    num_replicas: int
    resources: Mapping[str, float]
    """Of one replica, all on one node."""
    labels: Mapping[str, str]
    max_replicas_per_node: int = 0
    """0: no limit."""
    is_autoscaled: bool = False


def check_room(demands: Sequence[Demand], nodes: Sequence[Node]) -> None:
    """Raises ConfigError, naming what to change, unless all replicas of all pools fit on the nodes at once."""
    free = [Free(node) for node in nodes]
    # GPUs first: what needs none finds room where they are not.
    ordered = sorted(demands, key=lambda each: each.resources.get("GPU", 0.0), reverse=True)
    problems = [problem for each in ordered if (problem := _place(each, nodes, free))]
    if problems:
        raise ConfigError("; ".join(problems))


def demand(options: Mapping[str, Any]) -> Demand:
    """What a deployment's options ask for, in Serve's words. Of an autoscaled pool what it starts with."""
    pool, actor = options["name"], options.get("ray_actor_options") or {}
    scaling = options.get("autoscaling_config")
    if scaling:
        count = scaling.get("initial_replicas") or scaling.get("min_replicas", 1)
    else:
        count = options.get("num_replicas") or 1
    wanted: Counter[str] = Counter()
    if bundles := options.get("placement_group_bundles"):
        selectors = options.get("placement_group_bundle_label_selector") or [{}]
        labels: Mapping[str, str] = selectors[0]
        for bundle in bundles:
            wanted.update(bundle)
    else:
        labels = actor.get("label_selector") or {}
        wanted.update({"CPU": actor.get("num_cpus") or 0, "GPU": actor.get("num_gpus") or 0})
        wanted.update(actor.get("resources") or {})
    return Demand(
        pool,
        count,
        {name: float(amount) for name, amount in wanted.items() if amount > 0},
        labels,
        options.get("max_replicas_per_node") or 0,
        is_autoscaled=bool(scaling),
    )


class Free:
    """What is left of a node while replicas are placed."""

    def __init__(self, node: Node) -> None:
        self._amounts = {name: amount for name, amount in node.resources.items() if name != "GPU"}
        # One by one, because a share is of one GPU: three replicas of 0.6 do not fit on two.
        self._gpus = [1.0] * int(node.resources.get("GPU", 0.0))

    def take(self, resources: Mapping[str, float]) -> bool:
        """Take a replica's resources; False, and nothing taken, where they do not fit."""
        amounts = {name: amount for name, amount in resources.items() if name != "GPU"}
        gpus = self._find_gpus(resources.get("GPU", 0.0))
        if gpus is None or any(self._amounts.get(name, 0.0) + _SLACK < amount for name, amount in amounts.items()):
            return False
        for name, amount in amounts.items():
            self._amounts[name] -= amount
        for index, share in gpus.items():
            self._gpus[index] -= share
        return True

    def _find_gpus(self, wanted: float) -> dict[int, float] | None:
        """Shares by GPU that make up `wanted`; None: there are none. The fullest GPU that has room is shared first."""
        if wanted <= 0:
            return {}
        count, share = (1, wanted) if wanted < 1 else (round(wanted), 1.0)
        having = sorted((left, index) for index, left in enumerate(self._gpus) if left + _SLACK >= share)
        return {index: share for _, index in having[:count]} if len(having) >= count else None


def _place(demand: Demand, nodes: Sequence[Node], free: Sequence[Free]) -> str:
    """Take the demand out of what is `free` on each node; what is wrong, or empty."""
    selected = [left for node, left in zip(nodes, free, strict=True) if matches(node.labels, demand.labels)]
    if not selected:
        return _no_node(demand, nodes)
    num_placed = 0
    for left in selected:
        room = demand.num_replicas - num_placed
        if demand.max_replicas_per_node:
            room = min(room, demand.max_replicas_per_node)
        while room and left.take(demand.resources):
            room, num_placed = room - 1, num_placed + 1
    return "" if num_placed == demand.num_replicas else _no_room(demand, len(selected), num_placed)


def _no_node(demand: Demand, nodes: Sequence[Node]) -> str:
    known = sorted({f"{key}={node.labels[key]}" for node in nodes for key in demand.labels if key in node.labels})
    have = f"the nodes have {', '.join(known)}" if known else f"none of the {len(nodes)} nodes has such a label"
    return (
        f"the {demand.pool} pool wants nodes with {_selector(demand)}, and {have}: "
        f"change deployment.{demand.pool}.labels, or start nodes with `ray start --labels`"
    )


def _no_room(demand: Demand, num_nodes: int, num_placed: int) -> str:
    each = ", ".join(f"{amount:g} {name}" for name, amount in demand.resources.items())
    which = f" with {_selector(demand)}" if demand.labels else ""
    limit = f", {demand.max_replicas_per_node} on a node" if demand.max_replicas_per_node else ""
    replicas = "1 replica" if demand.num_replicas == 1 else f"{demand.num_replicas} replicas"
    node = "node" if num_nodes == 1 else "nodes"
    section, settings = f"deployment.{demand.pool}", []
    if demand.num_replicas > 1:
        settings += [f"{demand.pool}.num_replicas"]
        settings += [f"{section}.autoscaling.min_replicas"] if demand.is_autoscaled else []
    settings += [f"{section}.{'num_gpus' if 'GPU' in demand.resources else 'num_cpus'}"]
    settings += [f"{section}.resources"] if demand.resources.keys() - {"CPU", "GPU"} else []
    return (
        f"the {demand.pool} pool wants {replicas} of {each} each{limit}, and its {num_nodes} {node}{which} "
        f"{'has' if num_nodes == 1 else 'have'} room for {num_placed} beside the other pools: "
        f"lower {' or '.join(settings)}, or add nodes"
    )


def _selector(demand: Demand) -> str:
    return ", ".join(f"{key}={value}" for key, value in demand.labels.items())


_ONE_OF = re.compile(r"in\((?P<values>.*)\)")


def matches(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a node with these labels may be used: `value`, `!value`, `in(a,b)` and `!in(a,b)`, as Ray reads them."""
    return all(_holds(labels.get(key), wanted) for key, wanted in selector.items())


def _holds(value: str | None, wanted: str) -> bool:
    is_excluded, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    one_of = _ONE_OF.fullmatch(wanted)
    values = [each.strip() for each in one_of["values"].split(",")] if one_of else [wanted]
    return (value in values) != is_excluded
