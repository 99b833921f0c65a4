"""Configuration of the draft service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pilotfish.config.engine import EngineConfig
from pilotfish.config.fields import STRICT, require
from pilotfish.config.paths import HeadOrPath, ModelOrPath


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The draft service."""

    __pydantic_config__ = STRICT

    proposer: str = "ngram"
    """`ngram` (prompt lookup), `suffix` (suffix decoding), `model` (a causal LM with the target's tokenizer),
    `eagle3` (a head on the target's features) or `hybrid` (suffix decoding where it is confident, else the model)."""
    model: ModelOrPath = "smollm2-135m-instruct"
    """The drafter of proposers `model` and `hybrid`; for the others the model whose tokenizer is used."""
    head: HeadOrPath = "smollm2-135m-instruct-eagle3"
    """Of proposer `eagle3`: a head's folder, or the name of one that comes with Pilotfish. draft.model is then the
    target, whose embeddings and tokenizer are used."""
    feature_format: Literal["bf16", "fp8"] = "bf16"
    """How the target's features travel to proposer `eagle3`. fp8 halves the bytes and costs some acceptance."""
    host: str = "127.0.0.1"
    """Address to listen on. Beyond the loopback interface it needs `security.internal`."""
    port: int = 50062
    """0 takes a free port (under Ray it always does)."""
    metrics_port: int = -1
    """/metrics for Prometheus, on telemetry.metrics_host: 0 takes a free port (under Ray any other number does so,
    too), -1 serves none. The orchestrator's /metrics has what the replicas report in any case."""
    num_replicas: int = 1
    """Replicas under Ray Serve; 0 deploys no draft pool."""
    prompt_lookup_min: int = 2
    """Shortest n-gram that is looked up (vLLM's name)."""
    prompt_lookup_max: int = 4
    """Longest n-gram that is looked up, tried first (vLLM's name)."""
    lookup_min_probability: float = 0.08
    """A lookup drafts a token while its whole path is at least this likely to be accepted, as estimated from
    the match. About what verifying a token costs, in decode steps, times the tokens that a step yields."""
    suffix_shared_tokens: int = 65536
    """Recent outputs of other requests in which `suffix` looks, too; some 500 bytes of memory each. 0 keeps
    requests apart: otherwise how fast an answer comes can tell that somebody else got a similar one."""
    hybrid_min_accepted_tokens: float = 1.0
    """`hybrid` answers with a lookup that promises at least this many accepted tokens, else asks the model:
    a lookup costs nothing, so that it is worth as much as a model that promises somewhat more."""
    top_m: int = 32
    """Pairs in a sparse draft distribution (rejection mode)."""
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "draft.port must be between 0 and 65535")
        require(-1 <= self.metrics_port <= 65535, "draft.metrics_port must be between 0 and 65535, or -1 for none")
        require(self.num_replicas >= 0, "draft.num_replicas must be at least 0")
        require(
            1 <= self.prompt_lookup_min <= self.prompt_lookup_max,
            "draft.prompt_lookup_min must be at least 1 and at most prompt_lookup_max",
        )
        require(0 <= self.lookup_min_probability <= 1, "draft.lookup_min_probability must be between 0 and 1")
        require(
            self.suffix_shared_tokens == 0 or self.suffix_shared_tokens >= 256,
            "draft.suffix_shared_tokens must be 0 (nothing is shared) or at least 256",
        )
        require(self.hybrid_min_accepted_tokens >= 0, "draft.hybrid_min_accepted_tokens must be at least 0")
        require(self.top_m >= 1, "draft.top_m must be at least 1")
