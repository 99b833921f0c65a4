"""Configuration of the target service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pilotfish.config.engine import EngineConfig
from pilotfish.config.fields import STRICT, require
from pilotfish.config.paths import HeadOrPath, ModelOrPath


@dataclass(frozen=True, kw_only=True)
class InTargetDrafterConfig:
    """A drafter in the target, in its engine: it looks at the target's hidden states, and takes no round trip."""

    __pydantic_config__ = STRICT

    proposer: Literal["none", "eagle3", "medusa", "early_exit"] = "none"
    """`eagle3` and `medusa`: heads trained for this target. `early_exit`: the target's own first layers."""
    lookup: Literal["none", "ngram", "suffix"] = "none"
    """Looked up first (as `draft.*` says): the proposer drafts only where the lookup is not confident
    (`draft.hybrid_min_accepted_tokens`). With proposer `none` the lookup alone drafts."""
    model: HeadOrPath = ""
    """Folder of the heads, or the name of one that comes with Pilotfish."""
    exit_layer: int = 0
    """Layers that draft, for `early_exit`; 0 takes three quarters of them."""

    def __post_init__(self) -> None:
        needs_model = self.proposer in ("eagle3", "medusa")
        require(
            bool(self.model) or not needs_model,
            f"target.drafter.model is empty; {self.proposer} needs the folder of its heads",
        )
        require(self.exit_layer >= 0, "target.drafter.exit_layer must be at least 0 (0: chosen)")


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """The target service."""

    __pydantic_config__ = STRICT

    model: ModelOrPath = "smollm2-135m-instruct"
    """Catalogue name, hub id or local folder."""
    host: str = "127.0.0.1"
    """Address to listen on. Beyond the loopback interface it needs `security.internal`."""
    port: int = 50061
    """0 takes a free port (under Ray it always does)."""
    metrics_port: int = -1
    """/metrics for Prometheus, on telemetry.metrics_host: 0 takes a free port (under Ray any other number does so,
    too), -1 serves none. The orchestrator's /metrics has what the replicas report in any case."""
    num_replicas: int = 1
    """Replicas under Ray Serve."""
    tensor_parallel_size: int = 1
    """Ranks of one replica (vLLM's name): processes of one machine that share each layer's heads, MLP and KV cache,
    on CUDA each with a GPU of its own. Heads, key/value heads and MLP neurons must divide by it."""
    drafter: InTargetDrafterConfig = field(default_factory=InTargetDrafterConfig)
    feature_layers: Literal["auto", "eagle3"] | tuple[int, ...] = "auto"
    """Layers whose inputs are kept beside the KV cache and sent to drafters that ask for them: some 15 % of the
    cache's memory. `eagle3`: the three of published EAGLE-3 heads. `auto`: these if draft.proposer is eagle3 and no
    drafter lives in the target, else none; empty: none."""
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "target.port must be between 0 and 65535")
        require(-1 <= self.metrics_port <= 65535, "target.metrics_port must be between 0 and 65535, or -1 for none")
        require(self.num_replicas >= 1, "target.num_replicas must be at least 1")
        require(self.tensor_parallel_size >= 1, "target.tensor_parallel_size must be at least 1 (1: one process)")
        require(
            self.tensor_parallel_size == 1 or self.drafter.proposer != "eagle3",
            "target.drafter.proposer eagle3 runs on a target in one process: with target.tensor_parallel_size "
            f"{self.tensor_parallel_size} let the draft pool run the head (draft.proposer: eagle3)",
        )
        require(
            self.tensor_parallel_size == 1 or self.engine.quantization != "int4",
            "target.engine.quantization int4 needs the native CPU kernels, which run in one process: "
            "set target.tensor_parallel_size to 1, or quantization to none",
        )
        require(
            self.feature_layers == "auto" or not self.feature_layers or self.drafter.proposer == "none",
            f"target.feature_layers is {self.feature_layers}: features are kept for drafters elsewhere, but "
            f"{self.drafter.proposer} drafts in the target: configure one of them",
        )
