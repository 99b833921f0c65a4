"""Configuration of the target service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import NonNegativeInt, PositiveInt

from pilotfish.config.engine import EngineConfig
from pilotfish.config.fields import STRICT, Host, OptionalPort, Port, require
from pilotfish.config.paths import HeadOrPath, ModelOrPath
from pilotfish.drafter_registry import IN_TARGET_DRAFTERS, Location, Needs, drafters_of

if TYPE_CHECKING:
    ProposerName: TypeAlias = str
    LookupName: TypeAlias = str
    FeatureLayers: TypeAlias = str
else:
    ProposerName = Literal["auto", "none", *IN_TARGET_DRAFTERS]
    LookupName = Literal["auto", "none", *drafters_of(Needs.TEXT, Location.TARGET)]
    FeatureLayers = Literal["auto", *drafters_of(Needs.FEATURES, Location.DRAFT_SERVICE)]


@dataclass(frozen=True, kw_only=True)
class InTargetDrafterConfig:
    """A drafter inside the target's engine, without round trips."""

    __pydantic_config__ = STRICT

    proposer: ProposerName = "auto"
    """`eagle3`, `medusa`: heads trained for this target. `early_exit`: its own first layers. `auto`: the head that
    comes with Pilotfish, if there is one and no other drafter is configured."""
    lookup: LookupName = "auto"
    """A lookup [before the proposer](proposers.md#a-lookup-before-another-drafter). `auto`: `suffix` if proposer `auto`
    found a head, else `none`."""
    model: HeadOrPath = ""
    """The head or trained exit: a folder, or the name of a head that comes with Pilotfish. Empty: the head for the
    target, or a bare exit."""
    exit_layer: NonNegativeInt = 0
    """Layers that `early_exit` runs. 0: as trained; bare, half of them."""
    grammar: bool = True
    """Draft what a request's [grammar](structured-output.md#drafts-of-the-grammar) leaves no choice about, beside any
    other drafter."""

    def __post_init__(self) -> None:
        require(
            not self.model or self.proposer != "auto",
            "target.drafter.model is given without target.drafter.proposer: set it to "
            + " or ".join(IN_TARGET_DRAFTERS),
        )
        require(
            not self.exit_layer or self.proposer == "early_exit",
            f"target.drafter.exit_layer is {self.exit_layer}, and proposer {self.proposer} has none: "
            "set target.drafter.proposer to early_exit",
        )


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """The target service."""

    __pydantic_config__ = STRICT

    model: ModelOrPath = "smollm2-135m-instruct"
    """Catalogue name, hub id, folder or GGUF file."""
    lora: ModelOrPath = ""
    """LoRA adapter (peft's folder, or a hub id), [merged](models.md#lora-adapters) at start."""
    host: Host = "127.0.0.1"
    """Address to listen on. Other than loopback needs `security.internal`."""
    port: Port = 50061
    """Port to listen on; 0: a free one, as always under Ray."""
    metrics_port: OptionalPort = -1
    """Port of Prometheus' /metrics. 0: a free one; -1: none. The orchestrator's covers replicas, too."""
    num_replicas: PositiveInt = 1
    """Replicas under Ray Serve."""
    tensor_parallel_size: PositiveInt = 1
    """Processes of one machine, on CUDA with one GPU each, that share a replica's model ([which
    sizes](tensor-parallel.md#which-sizes-and-models-work))."""
    drafter: InTargetDrafterConfig = field(default_factory=InTargetDrafterConfig)
    """A drafter inside the target's engine."""
    feature_layers: FeatureLayers | tuple[int, ...] = "auto"
    """Layers whose inputs are kept for a head in the draft service, at some 15 % of the KV cache's memory, all of it on
    [rank 0](gpu.md#memory-for-the-kv-cache). `auto`: those of `draft.proposer`. `[]`: none."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """Engine of the target model."""

    def __post_init__(self) -> None:
        proposer = self.drafter.proposer
        require(
            self.tensor_parallel_size == 1 or proposer not in drafters_of(Needs.LAYERS, Location.TARGET),
            f"target.drafter.proposer {proposer} runs on a target in one process: with target.tensor_parallel_size "
            f"{self.tensor_parallel_size} choose another drafter",
        )
        require(
            self.tensor_parallel_size == 1 or self.engine.quantization != "int4",
            "target.engine.quantization int4 needs the native CPU kernels, which run in one process: "
            "set target.tensor_parallel_size to 1, or quantization to none",
        )
