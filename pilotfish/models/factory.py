"""Makes the decoder that suits a loaded model, the machine and the configuration."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from pilotfish.config import CpuKernels, EngineConfig
from pilotfish.errors import ConfigError
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.determinism import blocks_needed, is_batch_invariant
from pilotfish.models.device import require_fp8
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.models.loading import LoadedModel
from pilotfish.models.native.build import NativeKernelsUnavailableError, variants_here
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.native.layout import unsupported_reason
from pilotfish.models.own_cache.build import build_own_cache_decoder
from pilotfish.models.own_cache.text_cache import Rows
from pilotfish.models.self_check.check import BFLOAT16_TOLERANCE, bfloat16_deviation, serving_path_of
from pilotfish.models.self_check.twin import CONTEXT

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BuiltDecoder:
    """A decoder and what was found out about it."""

    decoder: Decoder
    deterministic: bool
    """Probed, not promised: see determinism.py. False when it was not asked for."""


def build_decoder(
    loaded: LoadedModel,
    engine: EngineConfig,
    *,
    num_threads: int,
    cache_dir: Path,
    device: torch.device = torch.device("cpu"),
) -> BuiltDecoder:
    """Take over the loaded model, to compute on the device. Raises UnsupportedModelError, ConfigError."""
    if engine.max_context_tokens > loaded.max_context_tokens:
        raise ConfigError(
            f"max_context_tokens is {engine.max_context_tokens}; {loaded.model_id} was trained for "
            f"{loaded.max_context_tokens}"
        )
    path = loaded.path or serving_path_of(loaded.model.config, type(loaded.model))
    max_context_tokens = engine.max_context_tokens or loaded.max_context_tokens
    if not path.is_paged:
        torch.set_num_threads(num_threads)
        own = build_own_cache_decoder(loaded, engine, path, device, max_context_tokens=max_context_tokens)
        return BuiltDecoder(decoder=own, deterministic=own.rows is Rows.TILES)
    if device.type == "cuda":
        if engine.deterministic:
            logger.info("logits may depend on the batch: deterministic is not attempted on a GPU")
        on_gpu = build_gpu_decoder(loaded.model, engine, device, max_context_tokens=max_context_tokens)
        return BuiltDecoder(decoder=on_gpu, deterministic=False)
    if engine.quantization == "fp8":
        require_fp8(loaded.model.device)
    decoder = _native(loaded, engine, max_context_tokens, num_threads, cache_dir)
    if decoder is None:
        torch.set_num_threads(num_threads)
        decoder = TransformersDecoder(
            loaded.model, deterministic=engine.deterministic, max_context_tokens=max_context_tokens
        )
    return probed(decoder, deterministic=engine.deterministic)


def probed(decoder: Decoder, *, deterministic: bool) -> BuiltDecoder:
    """Find out whether the decoder is deterministic, if that is asked for."""
    if not deterministic:
        return BuiltDecoder(decoder=decoder, deterministic=False)
    decoder.allocate(blocks_needed())
    is_invariant = is_batch_invariant(decoder)
    if not is_invariant:
        logger.warning("logits depend on how tokens are cut into steps (%s, %s)", decoder.name, decoder.dtype)
    return BuiltDecoder(decoder=decoder, deterministic=is_invariant)


def _native(
    loaded: LoadedModel, engine: EngineConfig, max_context_tokens: int, num_threads: int, cache_dir: Path
) -> Decoder | None:
    reason = unsupported_reason(loaded.model, engine.quantization) if engine.compile else "compile is false"
    if reason is None:
        # The kernels bring their own threads; torch's would spin on the same cores, while packing and between steps.
        torch.set_num_threads(1)
        try:
            reason = _native_fault(loaded.model.config, cache_dir, engine.kernels)
        except NativeKernelsUnavailableError as error:
            reason = str(error)
    if reason is None:
        decoder = NativeDecoder(
            loaded.model,
            max_context_tokens=max_context_tokens,
            num_threads=num_threads,
            cache_dir=cache_dir,
            quantization=engine.quantization,
            kernels=engine.kernels,
        )
        names = [v.name for v in variants_here(engine.kernels) if decoder.uses_tiles or v.kernels != "amx"]
        logger.info("native kernels: engine.kernels %s, %s", engine.kernels, names[0] if names else "portable")
        return decoder
    if engine.quantization in ("int8", "int4"):
        raise ConfigError(
            f"engine.quantization is {engine.quantization}, and only the native CPU kernels compute with quantised "
            f"weights; they cannot run {loaded.model_id}: {reason}. Set engine.quantization to none or lossless"
        )
    if not engine.compile:
        return None
    logger.warning("native kernels are not used: %s", reason)
    return None


def _native_fault(config: PreTrainedConfig, cache_dir: Path, kernels: CpuKernels) -> str | None:
    """What the native kernels compute otherwise than transformers does. Raises NativeKernelsUnavailableError."""

    def take_over(twin: PreTrainedModel) -> Decoder:
        return NativeDecoder(twin, max_context_tokens=CONTEXT, num_threads=1, cache_dir=cache_dir, kernels=kernels)

    deviation = bfloat16_deviation(config, take_over)
    if deviation < BFLOAT16_TOLERANCE:
        return None
    return f"their logits differ from transformers' by {deviation:.2g} standard deviations"
