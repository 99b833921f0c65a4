"""Configuration of an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pilotfish.config.fields import STRICT, require

Quantization = Literal["none", "lossless", "int8", "int4", "fp8"]
AttentionKernels = Literal["auto", "flashinfer", "sdpa"]

DEFAULT_KV_CACHE_TOKENS = 32768


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One engine: the paged-KV batch executor inside a target or draft replica."""

    __pydantic_config__ = STRICT

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of weights, activations and KV cache. bfloat16 halves the bytes read for each token."""
    quantization: Quantization = "none"
    """Of the weights; a step is bound by reading them. `lossless`: tensors that were quantised before (GGUF's Q8_0
    and Q4_1) are packed as they were, with the same outputs bit for bit; where there are none, or no native CPU
    kernels, it changes nothing. `int8` and `int4` (with an int8 output projection) on the CPU round all linears in
    blocks of 32 and need the native kernels. `int8` and `fp8` on a GPU round the weights of the layers by output
    channel, and activations by token."""
    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:N`, or `auto`: the first CUDA device that this process sees, else the CPU. Under Ray,
    replicas see a GPU only where one is reserved for them, which `cuda` does and `auto` does not."""
    attention: AttentionKernels = "auto"
    """On a GPU: `flashinfer` (the package flashinfer-python), `sdpa` (torch's own), or `auto`: the first where it is
    installed and has kernels for the model."""
    cuda_graphs: bool = True
    """On a GPU, record decodes and verifications of all usual shapes at start-up and replay them: without it, the
    host's work on small steps takes longer than the GPU's."""
    gpu_memory_utilization: float = 0.9
    """Share of a GPU's memory that this engine may take (vLLM's name), for kv_cache_tokens 0. Engines that share a
    GPU must share it, too."""
    num_threads: int = 0
    """Threads of torch in the engine process; 0 takes the cores this process may use."""
    deterministic: bool = True
    """Cut work so that logits do not depend on the batch (probed at start-up). Costs prefill speed. On a GPU it is
    not attempted: its libraries choose their kernels, and with them the rounding, by the size of the batch."""
    compile: bool = True
    """Compile the native CPU kernels with the system's C++ compiler (some seconds once, cached on disk) and
    use them where they support the model; false, or without a compiler: torch's own operations."""
    max_context_tokens: int = 0
    """Prompt plus output at most; 0 takes the model's own limit."""
    kv_cache_tokens: int = DEFAULT_KV_CACHE_TOKENS
    """Capacity of the paged KV pool in tokens, over all sequences. 0 takes what gpu_memory_utilization leaves of a
    GPU's memory, and on the CPU the default."""
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
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None,
            f"device is {self.device!r}; it must be auto, cpu, cuda or cuda:N",
        )
        self._check_quantization()
        require(
            0 < self.gpu_memory_utilization <= 1,
            "gpu_memory_utilization must be above 0 and at most 1 (a share of the GPU's memory)",
        )
        require(self.max_context_tokens >= 0, "max_context_tokens must be at least 0 (0: the model's limit)")
        require(
            self.kv_cache_tokens == 0 or self.kv_cache_tokens >= 32,
            "kv_cache_tokens must be at least 32 (two blocks), or 0 (what a GPU's memory holds)",
        )
        require(self.max_sequences >= 1, "max_sequences must be at least 1")
        require(self.max_draft_tokens >= 1, "max_draft_tokens must be at least 1")
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
