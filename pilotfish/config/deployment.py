"""Configuration of the deployment on a Ray cluster: where each pool's replicas go, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotfish.config.fields import STRICT, require


@dataclass(frozen=True, kw_only=True)
class AutoscalingConfig:
    """How many replicas a pool has, by its load."""

    __pydantic_config__ = STRICT

    max_replicas: int = 0
    """At most; 0: no autoscaling, the pool has its num_replicas."""
    min_replicas: int = 1
    """At least. Never 0: a pool without a replica could not tell that it is needed."""
    target_sequences: float = 32.0
    """Sequences per replica that are aimed at: those open there, and of the target pool also the requests that wait
    at the orchestrators. By default half of engine.max_sequences: room until the next replica is up."""
    target_kv_usage: float = 0.8
    """Share of its KV blocks in use that is aimed at. The pool grows by whichever of the two asks for more."""
    look_back_s: float = 30.0
    """The load is averaged over this time."""
    report_interval_s: float = 10.0
    """Between a replica's reports to the controller."""
    upscale_delay_s: float = 30.0
    """The pool must have been too small for this long."""
    downscale_delay_s: float = 600.0
    """The pool must have been too large for this long: loading a model again costs more than keeping it a while."""

    @property
    def is_on(self) -> bool:
        return self.max_replicas > 0

    def __post_init__(self) -> None:
        require(self.min_replicas >= 1, "autoscaling.min_replicas must be at least 1")
        require(
            self.max_replicas == 0 or self.max_replicas >= self.min_replicas,
            "autoscaling.max_replicas must be at least min_replicas, or 0 for no autoscaling",
        )
        require(self.target_sequences > 0, "autoscaling.target_sequences must be above 0")
        require(0 < self.target_kv_usage <= 1, "autoscaling.target_kv_usage must be above 0 and at most 1")
        require(self.report_interval_s > 0, "autoscaling.report_interval_s must be above 0")
        require(
            self.look_back_s > self.report_interval_s,
            "autoscaling.look_back_s must exceed report_interval_s: otherwise there may be nothing to look back on",
        )
        require(self.upscale_delay_s >= 0, "autoscaling.upscale_delay_s must be at least 0")
        require(self.downscale_delay_s >= 0, "autoscaling.downscale_delay_s must be at least 0")


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """What one replica of a pool takes, and from which nodes."""

    __pydantic_config__ = STRICT

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that may run it, as Ray selects them: `value`, `!value`, `in(a,b)` or `!in(a,b)`. Ray labels
    nodes with `ray.io/accelerator-type` itself; others are given to `ray start --labels`. Empty: any node."""
    num_cpus: float = 0.1
    """CPUs that a replica reserves. Its engine's threads are its own business (engine.num_threads): a whole one
    would keep three pools off a machine with two."""
    num_gpus: float | None = None
    """GPUs that a replica reserves, and with target.tensor_parallel_size each of its ranks; below 1 it shares one with
    others, which drafts may well do. null: 1 where it computes on one, and on this machine under `pilotfish up` its
    share of those there are."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom Ray resources that a replica reserves."""
    max_replicas_per_node: int = 0
    """0: as many as fit, which Ray always does with replicas of several ranks."""
    surge_percent: int = 0
    """Share of the replicas that a rolling update starts before it stops old ones, in percent. 0 needs no spare GPU,
    but the pool is smaller meanwhile, and a pool of one replica away."""

    def __post_init__(self) -> None:
        require(self.num_cpus >= 0, "num_cpus must be at least 0")
        gpus = self.num_gpus
        require(gpus is None or gpus >= 0, "num_gpus must be at least 0")
        require(
            gpus is None or gpus <= 1 or gpus == int(gpus),
            f"num_gpus is {gpus}: Ray gives shares of one GPU, or whole ones",
        )
        require(all(amount > 0 for amount in self.resources.values()), "resources must be above 0")
        require(self.max_replicas_per_node >= 0, "max_replicas_per_node must be at least 0 (0: as many as fit)")
        require(0 <= self.surge_percent <= 100, "surge_percent must be between 0 and 100")


@dataclass(frozen=True, kw_only=True)
class ScaledPoolConfig(PoolConfig):
    """What one replica of a pool takes, from which nodes, and how many replicas there are."""

    autoscaling: AutoscalingConfig = field(default_factory=AutoscalingConfig)
    """By load; off by default."""


@dataclass(frozen=True, kw_only=True)
class OrchestratorPoolConfig(PoolConfig):
    """What one orchestrator takes, from which nodes. There is one on a node, unless orchestrator.port is 0."""

    drain_s: float = 30.0
    """An orchestrator that is replaced refuses new requests and gives those it has this long to end. (Requests leave
    target and draft replicas at once, for other replicas.)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.drain_s >= 0, "drain_s must be at least 0")


@dataclass(frozen=True, kw_only=True)
class DeploymentConfig:
    """The pools on a Ray cluster. Plain processes have no use for it."""

    __pydantic_config__ = STRICT

    target: ScaledPoolConfig = field(default_factory=ScaledPoolConfig)
    """The target pool."""
    draft: ScaledPoolConfig = field(default_factory=ScaledPoolConfig)
    """The draft pool."""
    orchestrator: OrchestratorPoolConfig = field(default_factory=OrchestratorPoolConfig)
    """The orchestrators."""
