"""Configuration of the choice among replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from pilotfish.config.fields import STRICT, PositiveShare, Share


@dataclass(frozen=True, kw_only=True)
class RoutingConfig:
    """Choice of a target replica."""

    __pydantic_config__ = STRICT

    policy: Literal["prefix_aware", "least_loaded"] = "prefix_aware"
    """`prefix_aware`: the replica that has most of the prompt cached, while loads stay even. `least_loaded`: by load
    alone."""
    cache_threshold: Share = 0.3
    """Share of the prompt that must be cached; below it, load decides."""
    balance_abs_threshold: NonNegativeInt = 8
    """A cached prefix counts only on replicas with at most `balance_rel_threshold` times the least loaded one's
    sequences, plus this."""
    balance_rel_threshold: Annotated[float, Field(ge=1)] = 1.5
    """See balance_abs_threshold; at least 1."""
    max_kv_usage: PositiveShare = 0.9
    """A cached prefix counts only on replicas with at most this share of KV blocks in use."""
    max_prefix_blocks: PositiveInt = 65536
    """Prefix blocks of 16 tokens remembered per replica, at some 100 bytes each."""
