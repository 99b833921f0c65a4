"""Features as they travel: in bfloat16 or in int8, see pilotfish.v1.Features.

Legend: T tokens, F layers, H hidden size; a token's features are [F * H], its layers one after the other.
"""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor

from pilotfish.features import Features

assert sys.byteorder == "little", "tensors are sent as they lie in memory"

_INT8_MAX = 127


def encode_features(values: Tensor, first_position: int, *, num_int8_layers: int = 0) -> Features:
    """values: [T, F * H] of the positions from first_position on, T at least 1. num_int8_layers: F, for int8; 0:
    bfloat16."""
    if num_int8_layers:
        data = _to_int8(values.view(len(values), num_int8_layers, -1)).cpu()
    else:
        data = values.to("cpu", torch.bfloat16).contiguous().view(torch.uint8)
    return Features(first_position, len(values), data.numpy().tobytes())


def decode_features(features: Features, *, width: int, num_layers: int) -> Tensor:
    """[T, width] bfloat16, with width = F * H; num_layers is F. The form is known by the bytes.

    Raises ValueError for another number of bytes, and for values that are no finite numbers.
    """
    bfloat16_bytes, int8_bytes = 2 * width, width + num_layers * torch.float32.itemsize
    data = torch.frombuffer(bytearray(features.data), dtype=torch.uint8)
    if len(data) == features.num_tokens * int8_bytes:
        values = _from_int8(data.view(features.num_tokens, int8_bytes), width)
    elif len(data) == features.num_tokens * bfloat16_bytes:
        values = data.view(torch.bfloat16).view(features.num_tokens, width)
    else:
        raise ValueError(
            f"{len(data)} bytes for {features.num_tokens} tokens; {bfloat16_bytes} or {int8_bytes} are for each"
        )
    if not math.isfinite(values.sum()):  # any that is not makes it so
        raise ValueError("some of the values are no finite numbers")
    return values


def _to_int8(values: Tensor) -> Tensor:
    """uint8 [T, F * H + 4 * F] of [T, F, H]: each layer of a token is scaled by its largest value."""
    wide = values.to(torch.float32, copy=True)  # what is in float32 already stays as it is
    scales = wide.abs().amax(-1, keepdim=True).div_(_INT8_MAX).clamp_(min=torch.finfo(torch.float32).tiny)
    rounded = wide.div_(scales).round_().to(torch.int8).flatten(1)
    return torch.cat((rounded.view(torch.uint8), scales.squeeze(-1).view(torch.uint8)), dim=1)


def _from_int8(data: Tensor, width: int) -> Tensor:
    scales = data[:, width:].contiguous().view(torch.float32)
    values = data[:, :width].view(torch.int8).view(len(data), scales.shape[1], -1)
    return (values * scales.unsqueeze(-1)).bfloat16().flatten(1)
