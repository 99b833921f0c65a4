"""Configuration of the choice among replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pilotfish.config.fields import STRICT, require


@dataclass(frozen=True, kw_only=True)
class RoutingConfig:
    """Choice of a target replica."""

    __pydantic_config__ = STRICT

    policy: Literal["prefix_aware", "least_loaded"] = "prefix_aware"
    """`prefix_aware`: the replica that has most of the prompt cached, while loads stay even. `least_loaded`: by load
    alone."""
    cache_threshold: float = 0.3
    """Share of the prompt that must be cached; below it, load decides."""
    balance_abs_threshold: int = 8
    """A cached prefix counts only on replicas with at most `balance_rel_threshold` times the least loaded one's
    sequences, plus this."""
    balance_rel_threshold: float = 1.5
    """See balance_abs_threshold; at least 1."""
    max_kv_usage: float = 0.9
    """A cached prefix counts only on replicas with at most this share of KV blocks in use."""
    max_prefix_blocks: int = 65536
    """Prefix blocks of 16 tokens remembered per replica, at some 100 bytes each."""

    def __post_init__(self) -> None:
        require(0 <= self.cache_threshold <= 1, "orchestrator.routing.cache_threshold must be between 0 and 1")
        require(self.balance_abs_threshold >= 0, "orchestrator.routing.balance_abs_threshold must be at least 0")
        require(self.balance_rel_threshold >= 1, "orchestrator.routing.balance_rel_threshold must be at least 1")
        require(0 < self.max_kv_usage <= 1, "orchestrator.routing.max_kv_usage must be above 0 and at most 1")
        require(self.max_prefix_blocks >= 1, "orchestrator.routing.max_prefix_blocks must be at least 1")
