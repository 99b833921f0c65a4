"""Moves host values to tensors on the device that computes, without waiting for what runs there.

A copy from ordinary memory to a GPU makes the host wait for everything queued before it; one from pinned
memory takes its place in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Values = Sequence[int] | Sequence[float] | Sequence[Sequence[int]] | Sequence[Sequence[float]]


def to_device(values: Values, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of the values on the device."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return moved(torch.tensor(values, dtype=dtype), device)


def write(target: Tensor, values: Tensor) -> None:
    """Copy a tensor of the CPU into one of its shape on any device."""
    target.copy_(values.pin_memory() if target.device.type == "cuda" else values, non_blocking=True)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device; itself when that is the CPU."""
    if device.type != "cuda":
        return tensor.to(device)
    # Pinned blocks are cached, and handed out again only when their copies are done.
    return tensor.pin_memory().to(device, non_blocking=True)
