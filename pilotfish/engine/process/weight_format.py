"""What `engine.quantization: auto` means for a model on a device: the least lossy format in which the weights, the
drafter beside them and the KV cache that is asked for fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, EngineConfig, Quantization
from pilotfish.engine.core.feature_store import feature_bytes
from pilotfish.errors import ConfigError
from pilotfish.models.device import DTYPES, FP8_CAPABILITY
from pilotfish.models.native.quantise import GROUP_OUTPUTS, quantise_as
from pilotfish.models.store.folder import read_metadata, tensor_shapes, text_fields, weight_files
from pilotfish.models.store.head_config import HeadTarget

logger = logging.getLogger(__name__)

_BYTES: Mapping[Quantization, float] = {"fp8": 1.0, "int8": 1.125, "int4": 0.625}
"""Bytes of a value of a layer's matrices, scales included. All other weights, embedding and output projection among
them, keep the engine's dtype."""
_WORKING_SHARE = 0.9
"""Share of the CPU's free memory to fill: steps and the interpreter take the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """What an engine keeps in memory, but for its steps."""

    matrix_values: int
    """Values of the layers' matrices."""
    other_values: int
    kv_bytes: int
    drafter_bytes: int = 0
    feature_bytes: int = 0
    """Bytes of the hidden states that are kept for a head elsewhere."""
    value_bytes: int = 2
    """Bytes of a value that is not rounded."""
    lossless_share: float = 1.0
    """Part of the matrices' bytes that `lossless` leaves."""

    @classmethod
    def of_model(
        cls,
        folder: Path,
        engine: EngineConfig,
        *,
        num_ranks: int = 1,
        drafter: Path | None = None,
        num_feature_layers: int = 0,
    ) -> MemoryNeeds:
        """A rank's part of the model in a folder. drafter: folder of what drafts beside it, on one rank; of several it
        may need the embeddings whole. num_feature_layers: those that
        are kept for a head elsewhere, on one rank as well."""
        matrix_values, other_values = _num_values(folder)
        num_tokens = engine.kv_cache_tokens or DEFAULT_KV_CACHE_TOKENS
        config = read_metadata(folder).config
        value_bytes = DTYPES[engine.dtype].itemsize
        drafter_bytes = 0
        if drafter is not None:
            drafter_bytes = sum(path.stat().st_size for path in drafter.glob("*.safetensors"))
            if num_ranks > 1:
                target = HeadTarget.of_folder(folder)
                drafter_bytes += value_bytes * target.vocab_size * target.hidden_size
        return cls(
            matrix_values=matrix_values // num_ranks,
            other_values=other_values // num_ranks,
            kv_bytes=num_tokens * _kv_values(config) * value_bytes // num_ranks,
            drafter_bytes=drafter_bytes,
            feature_bytes=feature_bytes(
                num_tokens, num_feature_layers, text_fields(config).get("hidden_size", 0), DTYPES[engine.dtype]
            ),
            value_bytes=value_bytes,
        )

    def num_bytes(self, quantization: Quantization) -> int:
        """All of it, with the weights in a format."""
        weights = self.matrix_values * _BYTES.get(quantization, self.value_bytes)
        if quantization == "lossless":
            weights *= self.lossless_share
        weights += self.other_values * self.value_bytes
        return int(weights) + self.kv_bytes + self.drafter_bytes + self.feature_bytes


def with_weight_format(
    engine: EngineConfig, needs: MemoryNeeds, free_bytes: int, formats: Sequence[Quantization]
) -> EngineConfig:
    """The engine with the first of the formats that fits. formats: the least lossy first.

    Raises ConfigError, with the numbers, where none does.
    """
    sizes = {quantization: needs.num_bytes(quantization) for quantization in formats}
    listed = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items())
    parts = {"KV cache": needs.kv_bytes, "drafter": needs.drafter_bytes, "features": needs.feature_bytes}
    beside = "of it " + ", ".join(f"{size / 1e9:.1f} GB {name}" for name, size in parts.items())
    account = f"{listed} ({beside}); {free_bytes / 1e9:.1f} GB may be taken"
    chosen = next((quantization for quantization, size in sizes.items() if size <= free_bytes), None)
    if chosen is None:
        raise ConfigError(
            f"engine.quantization auto: no format fits the memory: {account}. Use a smaller model or "
            "engine.kv_cache_tokens, or more memory"
        )
    logger.info("engine.quantization auto: %s. Needed: %s", chosen, account)
    return replace(engine, quantization=chosen)


def formats_of(device: torch.device, engine: EngineConfig, num_ranks: int) -> list[Quantization]:
    """What the device computes with, the least lossy first."""
    if engine.dtype != "bfloat16":
        return ["none"]
    if device.type == "cuda":
        has_fp8 = torch.cuda.get_device_capability(device) >= FP8_CAPABILITY
        return ["none", "fp8", "int8"] if has_fp8 else ["none", "int8"]
    return ["none", "lossless", "int8", "int4"] if engine.compile and num_ranks == 1 else ["none"]


def available_bytes(device: torch.device, engine: EngineConfig, num_ranks: int) -> int:
    """What each rank of an engine may take of its device's memory."""
    if device.type == "cuda":
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        return min(free_bytes, int(total_bytes * engine.gpu_memory_utilization))
    return int(_WORKING_SHARE * min(_machine_bytes(), _container_bytes()) / num_ranks)


def lossless_share(folder: Path) -> float:
    """Share of the matrices' bytes that `lossless` leaves, judged by the first rows of each matrix: they show which
    block format its weights had before, if any."""
    before = after = 0.0
    for path in weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 -- no mapping
                matrix = file.get_slice(name)
                if len(matrix.get_shape()) != 2 or ".layers." not in name:
                    continue
                found = quantise_as(matrix[:GROUP_OUTPUTS].bfloat16(), "lossless")
                num_bytes = 2.0 * prod(matrix.get_shape())
                before += num_bytes
                after += num_bytes if found is None else num_bytes / 2 * _BYTES[found[1]]
    return after / before if before else 1.0


def _machine_bytes() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def _container_bytes(group: Path = Path("/sys/fs/cgroup")) -> float:
    """What a limit of the container leaves; infinite without one."""
    try:
        left = float((group / "memory.max").read_text()) - float((group / "memory.current").read_text())
        # Cached files count as taken, and make way: those of a model that was just downloaded.
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return left + float(stat.get("active_file", 0)) + float(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # no such file, or "max"
        return float("inf")


def _num_values(folder: Path) -> tuple[int, int]:
    """Values of the layers' matrices, and of all else."""
    matrices = others = 0
    for name, shape in tensor_shapes(folder):
        if len(shape) > 1 and ".layers." in name:
            matrices += prod(shape)
        else:
            others += prod(shape)
    return matrices, others


def _kv_values(config: Mapping[str, Any]) -> int:
    """Keys and values of a token."""
    fields = text_fields(config)
    try:
        num_heads = fields["num_attention_heads"]
        head_dim = fields.get("head_dim") or fields["hidden_size"] // num_heads
        return int(2 * fields["num_hidden_layers"] * (fields.get("num_key_value_heads") or num_heads) * head_dim)
    except KeyError as error:
        raise ConfigError(
            f"engine.quantization auto cannot size the KV cache of a {fields.get('model_type')!r} model, whose "
            f"config.json lacks {error}: name a format"
        ) from None
