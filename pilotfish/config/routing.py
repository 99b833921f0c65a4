"""Configuration of the choice among replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pilotfish.config.fields import STRICT, require


@dataclass(frozen=True, kw_only=True)
class RoutingConfig:
    """How the orchestrator chooses a target replica. The thresholds are those of SGLang's cache-aware router."""

    __pydantic_config__ = STRICT

    policy: Literal["prefix_aware", "least_loaded"] = "prefix_aware"
    """`prefix_aware` sends a prompt where most of it is cached, as long as the load stays even. `least_loaded`
    looks at the load alone."""
    cache_threshold: float = 0.3
    """Share of a prompt that a replica must have cached to be preferred; below it the load decides."""
    balance_abs_threshold: int = 8
    """Sequences that a replica may have above the least loaded one's (times balance_rel_threshold) and still be
    preferred. A prefill that is spared is worth a few neighbours in the batch, not a queue."""
    balance_rel_threshold: float = 1.5
    """See balance_abs_threshold; at least 1."""
    max_kv_usage: float = 0.9
    """Share of its KV blocks in use above which a replica is not preferred for its cache: what it has cached is
    about to be evicted, and sequences may be preempted."""
    max_prefix_blocks: int = 65536
    """Prefix blocks of 16 tokens remembered per replica (some 100 bytes each); never more than the replica has."""

    def __post_init__(self) -> None:
        require(0 <= self.cache_threshold <= 1, "orchestrator.routing.cache_threshold must be between 0 and 1")
        require(self.balance_abs_threshold >= 0, "orchestrator.routing.balance_abs_threshold must be at least 0")
        require(self.balance_rel_threshold >= 1, "orchestrator.routing.balance_rel_threshold must be at least 1")
        require(0 < self.max_kv_usage <= 1, "orchestrator.routing.max_kv_usage must be above 0 and at most 1")
        require(self.max_prefix_blocks >= 1, "orchestrator.routing.max_prefix_blocks must be at least 1")
