"""Configuration of the deployment on a Ray cluster: where each pool's replicas go, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from pilotfish.config.fields import STRICT, PositiveShare, require


@dataclass(frozen=True, kw_only=True)
class AutoscalingConfig:
    """Number of replicas by load."""

    __pydantic_config__ = STRICT

    max_replicas: NonNegativeInt = 0
    """Maximum replicas. 0: no autoscaling, the pool keeps its num_replicas."""
    min_replicas: PositiveInt = 1
    """Minimum replicas, at least 1."""
    target_sequences: PositiveFloat = 32.0
    """Open sequences per replica to aim at, queued requests included in the target pool."""
    target_kv_usage: PositiveShare = 0.8
    """Share of KV blocks in use to aim at. The larger of the two sizes counts."""
    look_back_s: float = 30.0
    """Window over which load is averaged; longer than report_interval_s."""
    report_interval_s: PositiveFloat = 10.0
    """Interval of a replica's load reports."""
    upscale_delay_s: NonNegativeFloat = 30.0
    """How long the pool must be too small before it grows."""
    downscale_delay_s: NonNegativeFloat = 600.0
    """How long the pool must be too large before it shrinks."""

    @property
    def is_on(self) -> bool:
        return self.max_replicas > 0

    def __post_init__(self) -> None:
        require(
            self.max_replicas == 0 or self.max_replicas >= self.min_replicas,
            "autoscaling.max_replicas must be at least min_replicas, or 0 for no autoscaling",
        )
        require(
            self.look_back_s > self.report_interval_s,
            "autoscaling.look_back_s must exceed report_interval_s: otherwise there may be nothing to look back on",
        )


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """Resources and nodes of a replica."""

    __pydantic_config__ = STRICT

    labels: Mapping[str, str] = field(default_factory=dict)
    """Node labels required, in Ray's syntax: `value`, `!value`, `in(a,b)` or `!in(a,b)` ([Ray](ray.md))."""
    num_cpus: NonNegativeFloat = 0.1
    """CPUs reserved per replica; engine.num_threads sets its threads."""
    num_gpus: NonNegativeFloat | None = None
    """GPUs reserved per replica, or per rank; below 1 shares a GPU. null: 1 if the engine uses one; under `pilotfish
    serve`, an equal share."""
    resources: Mapping[str, PositiveFloat] = field(default_factory=dict)
    """Custom Ray resources reserved per replica."""
    max_replicas_per_node: NonNegativeInt = 0
    """Maximum replicas on a node; 0: no limit. Not for tensor-parallel replicas."""
    surge_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Percent of replicas that a rolling update starts before it stops old ones. With 0 a pool of one replica is down
    meanwhile."""

    def __post_init__(self) -> None:
        gpus = self.num_gpus
        require(
            gpus is None or gpus <= 1 or gpus == int(gpus),
            f"num_gpus is {gpus}: Ray gives shares of one GPU, or whole ones",
        )


@dataclass(frozen=True, kw_only=True)
class ScaledPoolConfig(PoolConfig):
    """Resources, nodes and number of replicas."""

    autoscaling: AutoscalingConfig = field(default_factory=AutoscalingConfig)
    """Number of replicas by load; off by default."""


@dataclass(frozen=True, kw_only=True)
class OrchestratorPoolConfig(PoolConfig):
    """Resources and nodes of an orchestrator. With a fixed port, a node runs at most one."""

    drain_s: NonNegativeFloat = 30.0
    """Time for open requests to end when a service of any pool stops, with Ray or without. A second SIGTERM or Ctrl-C
    ends it at once."""


@dataclass(frozen=True, kw_only=True)
class DeploymentConfig:
    """Placement and scaling on a Ray cluster, and how long services take to stop."""

    __pydantic_config__ = STRICT

    target: ScaledPoolConfig = field(default_factory=ScaledPoolConfig)
    """The target pool."""
    draft: ScaledPoolConfig = field(default_factory=ScaledPoolConfig)
    """The draft pool."""
    orchestrator: OrchestratorPoolConfig = field(default_factory=OrchestratorPoolConfig)
    """The orchestrators."""
    trainer: PoolConfig = field(default_factory=PoolConfig)
    """The trainer of `draft.learning`."""

    def __post_init__(self) -> None:
        require(
            not self.trainer.surge_percent,
            "deployment.trainer.surge_percent must be 0: a trainer does not start beside another one",
        )
