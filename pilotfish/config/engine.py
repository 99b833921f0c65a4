"""Configuration of an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from pilotfish.config.fields import STRICT, PositiveShare, require

Quantization = Literal["auto", "none", "lossless", "int8", "int4", "fp8"]
AttentionKernels = Literal["auto", "triton", "sdpa"]
CpuKernels = Literal["auto", "amx", "avx512", "avx2"]

DEFAULT_KV_CACHE_TOKENS = 32768
_MAX_LOGIT_ROWS = 512
"""Logits of 2,048 rows of 128,000 tokens take 1.6 GB with their copy in float32; 512 are 64 sequences of 7 drafts."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The engine of a replica: batches sequences over a paged KV cache."""

    __pydantic_config__ = STRICT

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Type of weights, activations and KV cache."""
    quantization: Quantization = "none"
    """Weight format. CPU: [`int8`, `int4`, `lossless`](decisions/0004-quantised-weights.md). GPU: [`int8`,
    `fp8`](gpu.md#8-bit-weights). `auto`: the least lossy that fits the memory that is free at start, drafter and KV
    cache included; where two services start on one host, name a format."""
    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:N`, or `auto` (the first visible GPU, else the CPU). Under Ray set `cuda`, as `auto`
    reserves no GPU."""
    attention: AttentionKernels = "auto"
    """GPU. `triton`: our kernels. `sdpa`: torch's, without graphs. `auto`: ours where they can run."""
    cuda_graphs: bool = True
    """GPU: record the usual step shapes at start-up and replay them."""
    gpu_memory_utilization: PositiveShare = 0.9
    """Share of a GPU's memory for this engine, if kv_cache_tokens is 0. Engines on one GPU must split it."""
    num_threads: NonNegativeInt = 0
    """Compute threads; 0: the cores that this process may use."""
    deterministic: bool = True
    """CPU: logits do not depend on the batch. Prefill is slower. No effect on a GPU."""
    compile: bool = True
    """CPU: compile the native kernels (some seconds, cached). GPU: torch.compile of a model's layers (a longer start).
    Both need a compiler."""
    kernels: CpuKernels = "auto"
    """CPU: the most that the kernels use; `auto`: all that the processor has. `amx` sums in another order than the
    others, so the targets of a pool must agree on it: `avx512` where only some have it."""
    max_context_tokens: NonNegativeInt = 0
    """Maximum tokens of prompt plus output; 0: the model's limit."""
    kv_cache_tokens: int = DEFAULT_KV_CACHE_TOKENS
    """Capacity of the KV cache, over all sequences. 0: on a GPU, what gpu_memory_utilization leaves; on the CPU, the
    default."""
    max_sequences: PositiveInt = 64
    """Maximum open sequences; further requests queue."""
    max_batch_tokens: int = 512
    """Maximum tokens per step. While others decode, prefills in a target take fewer."""
    prefix_caching: bool = True
    """Share the KV blocks of equal prefixes."""
    step_timeout_s: NonNegativeFloat = 0.0
    """An engine without a sign of life for so long is ended; 0: 60 s for ranks and on a GPU, never in one process on
    the CPU. Must exceed the longest step."""
    max_draft_tokens: PositiveInt = 32
    """Maximum draft tokens per round, all branches of a tree together."""

    @property
    def max_logit_rows(self) -> int:
        """Rows of a step whose logits are computed, at most: what is left over waits for the next step. A verification
        always fits."""
        each = self.max_draft_tokens + 1
        return min(self.max_batch_tokens, max(each, min(_MAX_LOGIT_ROWS, each * self.max_sequences)))

    def __post_init__(self) -> None:
        require(
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None,
            f"device is {self.device!r}; it must be auto, cpu, cuda or cuda:N",
        )
        self._check_quantization()
        require(
            self.kv_cache_tokens == 0 or self.kv_cache_tokens >= 32,
            "kv_cache_tokens must be at least 32 (two blocks), or 0 (what a GPU's memory holds)",
        )
        require(
            self.max_batch_tokens > self.max_draft_tokens,
            "max_batch_tokens must exceed max_draft_tokens: a verification runs in one step",
        )

    def _check_quantization(self) -> None:
        """What cannot be had on any machine; the rest is known where the device is."""
        require(
            self.quantization not in ("int8", "int4", "fp8") or self.dtype == "bfloat16",
            f"quantization {self.quantization} needs dtype bfloat16",
        )
        on_cpu = self.device == "cpu"
        require(
            self.quantization != "int4" or (self.compile and self.device in ("auto", "cpu")),
            "quantization int4 needs device cpu and compile true: only the native CPU kernels compute with it",
        )
        require(
            self.quantization != "int8" or self.compile or not on_cpu,
            "quantization int8 needs compile true on the CPU: only the native kernels compute with it there",
        )
        require(self.quantization != "fp8" or not on_cpu, "quantization fp8 needs a GPU: set device to cuda or auto")
