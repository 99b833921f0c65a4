"""Configuration of an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from pilotfish.config.fields import STRICT, PositiveShare, require

Quantization = Literal["auto", "none", "lossless", "int8", "int4", "fp8"]
AttentionKernels = Literal["auto", "triton", "sdpa"]
CpuKernels = Literal["auto", "avx512", "avx2"]

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
    """Weight format. CPU: `int8`, `int4` (weights and 8-bit activations in blocks of 32) or `lossless` (packs weights
    that come from GGUF's Q8_0 or Q4_1, same outputs). GPU: `int8` or `fp8` (weights per output channel, activations
    per token). `auto`: the least lossy in which weights, the drafter beside them, KV cache and kept features fit the
    memory that is free at start (on a CPU `lossless` comes right after `none`, with what the weights' first rows say
    that it saves); the log says which. It cannot know what another service on the same host is about to take:
    where both start there, name a format for one of them, or start them one after the other."""
    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:N`, or `auto` (the first visible GPU, else the CPU). Under Ray use `cuda`: `auto` reserves
    no GPU."""
    attention: AttentionKernels = "auto"
    """Attention on a GPU: `triton` (our kernels), `sdpa` (torch's, without graphs), or `auto` (triton where it can)."""
    cuda_graphs: bool = True
    """GPU: record the usual step shapes at start-up and replay them."""
    gpu_memory_utilization: PositiveShare = 0.9
    """Share of a GPU's memory for this engine (vLLM's name), if kv_cache_tokens is 0. Engines on one GPU must split
    it."""
    num_threads: NonNegativeInt = 0
    """Compute threads; 0: the cores that this process may use."""
    deterministic: bool = True
    """CPU: logits do not depend on the batch, which is checked at start-up. Prefill is slower. No effect on a GPU."""
    compile: bool = True
    """CPU: compile the native kernels with the system's C++ compiler (some seconds, cached). GPU: torch.compile fuses
    the small kernels of a model's layers (a longer start; needs a C compiler and Python's headers)."""
    kernels: CpuKernels = "auto"
    """CPU: what the native kernels are compiled for. `auto`: all that the processor has; `avx512` (with its products of
    bfloat16 and 8-bit integers, if it has both) or `avx2`: no more than that, to compare. Logits differ between them;
    an engine whose processor lacks them does not start."""
    max_context_tokens: NonNegativeInt = 0
    """Maximum tokens of prompt plus output; 0: the model's limit."""
    kv_cache_tokens: int = DEFAULT_KV_CACHE_TOKENS
    """Capacity of the KV cache in tokens, over all sequences. 0: on a GPU, what gpu_memory_utilization leaves (with
    several ranks, on the GPU with the least room); on the CPU, the default."""
    max_sequences: PositiveInt = 64
    """Maximum open sequences; further requests queue."""
    max_batch_tokens: int = 512
    """Maximum tokens per step. While others decode, prefills in a target take fewer: as many as make a step twice as
    long for each prompt that waits."""
    prefix_caching: bool = True
    """Share the KV blocks of equal prefixes."""
    step_timeout_s: NonNegativeFloat = 0.0
    """Time without a sign of life after which an engine counts as hung and is ended, so that requests go on elsewhere;
    0: 60 s for ranks and on a GPU, never in one process on the CPU. Must exceed the longest step."""
    max_draft_tokens: PositiveInt = 32
    """Maximum draft tokens per round, all branches of a tree together. Where targets differ, the least counts."""

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
