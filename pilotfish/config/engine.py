"""Configuration of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pilotfish.config.fields import STRICT, require

Quantization = Literal["none", "lossless", "int8", "int4"]


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One engine: the paged-KV batch executor inside a target or draft replica."""

    __pydantic_config__ = STRICT

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of weights, activations and KV cache. bfloat16 halves the bytes read for each token."""
    quantization: Quantization = "none"
    """Of the weights, in blocks of 32; a step is bound by reading them. `lossless`: tensors that were quantised
    before (GGUF's Q8_0 and Q4_1) are packed as they were, with the same outputs bit for bit; where there are none,
    or no native CPU kernels, it changes nothing. `int8` and `int4` (with an int8 output projection) round all
    linears and need the native CPU kernels."""
    device: str = "cpu"
    """A torch device."""
    num_threads: int = 0
    """Threads of torch in the engine process; 0 takes the cores this process may use."""
    deterministic: bool = True
    """Cut work so that logits do not depend on the batch (probed at start-up). Costs prefill speed."""
    compile: bool = True
    """Compile the native CPU kernels with the system's C++ compiler (some seconds once, cached on disk) and
    use them where they support the model; false, or without a compiler: torch's own operations."""
    max_context_tokens: int = 0
    """Prompt plus output at most; 0 takes the model's own limit."""
    kv_cache_tokens: int = 32768
    """Capacity of the paged KV pool in tokens, over all sequences."""
    max_sequences: int = 64
    """Sequences open at once; an orchestrator lets more requests wait in line."""
    max_batch_tokens: int = 512
    """Tokens computed in one step at most: bounds the time decodes wait behind a prefill."""
    prefix_caching: bool = True
    """Share the KV blocks of equal prefixes."""
    max_draft_tokens: int = 32
    """Draft tokens in one round at most, over all branches of a tree."""

    def __post_init__(self) -> None:
        require(self.num_threads >= 0, "num_threads must be at least 0 (0: all cores of this process)")
        require(
            self.quantization not in ("int8", "int4")
            or (self.compile and self.dtype == "bfloat16" and self.device == "cpu"),
            f"quantization {self.quantization} needs dtype bfloat16, device cpu and compile true: "
            "only the native CPU kernels compute with quantised weights",
        )
        require(self.max_context_tokens >= 0, "max_context_tokens must be at least 0 (0: the model's limit)")
        require(self.kv_cache_tokens >= 32, "kv_cache_tokens must be at least 32 (two blocks)")
        require(self.max_sequences >= 1, "max_sequences must be at least 1")
        require(self.max_draft_tokens >= 1, "max_draft_tokens must be at least 1")
        require(
            self.max_batch_tokens > self.max_draft_tokens,
            "max_batch_tokens must exceed max_draft_tokens: a verification runs in one step",
        )
