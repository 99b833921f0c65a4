"""Features as they travel: see pilotfish.v1.FeatureFormat.

Legend: T tokens, F layers, H hidden size; a token's features are [F * H], its layers one after the other.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from pilotfish.features import FeatureFormat, Features

_FP8 = torch.float8_e4m3fn
_FP8_MAX = torch.finfo(_FP8).max
_SCALE_BYTES = 4

assert sys.byteorder == "little", "tensors are sent as they lie in memory"


def encode_features(values: Tensor, first_position: int, kind: FeatureFormat, *, num_layers: int) -> Features:
    """values: [T, F * H] of the positions from first_position on, T at least 1."""
    return Features(first_position, len(values), kind, _encode(values, kind, num_layers).numpy().tobytes())


def decode_features(features: Features, *, width: int, num_layers: int) -> Tensor:
    """[T, width] with width = F * H, bfloat16 of BF16 and float32 of FP8.

    Raises ValueError for another number of bytes, and for values that are no finite numbers.
    """
    row_bytes = width * 2 if features.format is FeatureFormat.BF16 else width + num_layers * _SCALE_BYTES
    if len(features.data) != features.num_tokens * row_bytes:
        raise ValueError(
            f"{len(features.data)} bytes for {features.num_tokens} tokens; {row_bytes} for each are features of "
            f"{num_layers} layers, {width} wide together"
        )
    rows = torch.frombuffer(bytearray(features.data), dtype=torch.uint8).view(features.num_tokens, row_bytes)
    values = rows.view(torch.bfloat16) if features.format is FeatureFormat.BF16 else _from_fp8(rows, num_layers)
    if not bool(values.isfinite().all()):
        raise ValueError("some of the values are no finite numbers")
    return values


def _encode(values: Tensor, kind: FeatureFormat, num_layers: int) -> Tensor:
    """uint8 [T, bytes of a token], on the CPU."""
    if kind is FeatureFormat.BF16:
        return values.to("cpu", torch.bfloat16).contiguous().view(torch.uint8)
    layers = values.float().view(len(values), num_layers, -1)  # [T, F, H]
    scales = layers.abs().amax(-1) / _FP8_MAX
    scales[scales == 0] = 1.0
    quantised = (layers / scales.unsqueeze(-1)).to(_FP8).flatten(1)
    return torch.cat((scales.cpu().view(torch.uint8), quantised.cpu().view(torch.uint8)), dim=1)


def _from_fp8(rows: Tensor, num_layers: int) -> Tensor:
    scales_end = num_layers * _SCALE_BYTES
    scales = rows[:, :scales_end].contiguous().view(torch.float32)
    layers = rows[:, scales_end:].contiguous().view(_FP8).float().view(len(rows), num_layers, -1)
    return (layers * scales.unsqueeze(-1)).flatten(1)
