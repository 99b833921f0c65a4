"""Features as they travel: in bfloat16, see pilotfish.v1.Features.

Legend: T tokens, F layers, H hidden size; a token's features are [F * H], its layers one after the other.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from pilotfish.features import Features

assert sys.byteorder == "little", "tensors are sent as they lie in memory"


def encode_features(values: Tensor, first_position: int) -> Features:
    """values: [T, F * H] of the positions from first_position on, T at least 1."""
    data = values.to("cpu", torch.bfloat16).contiguous().view(torch.uint8)
    return Features(first_position, len(values), data.numpy().tobytes())


def decode_features(features: Features, *, width: int) -> Tensor:
    """[T, width] bfloat16, with width = F * H.

    Raises ValueError for another number of bytes, and for values that are no finite numbers.
    """
    if len(features.data) != features.num_tokens * width * 2:
        raise ValueError(f"{len(features.data)} bytes for {features.num_tokens} tokens; {width * 2} are for each")
    values = torch.frombuffer(bytearray(features.data), dtype=torch.bfloat16).view(features.num_tokens, width)
    if not bool(values.isfinite().all()):
        raise ValueError("some of the values are no finite numbers")
    return values
