"""What the connected Ray cluster consists of."""

from __future__ import annotations

import ray

from pilotfish.pools.capacity import Node


def nodes() -> list[Node]:
    """Those that are alive."""
    return [Node(node["Resources"], node.get("Labels") or {}) for node in ray.nodes() if node["Alive"]]
