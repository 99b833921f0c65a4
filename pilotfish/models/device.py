"""The device that an engine computes on, by the name that the configuration gives it."""

from __future__ import annotations

import torch

from pilotfish.errors import ConfigError

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
"""Dtypes by their names in the configuration."""
FP8_CAPABILITY = (8, 9)
"""CUDA compute capability from which on matrices are multiplied in fp8 (Ada, Hopper)."""


def resolve_device(name: str) -> torch.device:
    """`auto` (a CUDA device where there is one, else the CPU), `cpu`, `cuda` (the first one) or `cuda:N`.

    Raises ConfigError for a device that this machine lacks.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda", 0) if count else torch.device("cpu")
    device = torch.device(name)
    if device.type != "cuda":
        return device
    index = device.index or 0
    if index >= count:
        found = f"devices cuda:0 to cuda:{count - 1}" if count else "no CUDA device"
        # A pod sees its own GPUs alone.
        remedy = "set it to cuda, the first of them" if count else "set it to auto or cpu"
        raise ConfigError(f"engine.device is {name}, but torch sees {found} here: {remedy}")
    return torch.device("cuda", index)


def enter_device(device: torch.device) -> None:
    """Make it the current device of this thread: what is allocated without a name lies there."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def require_fp8(device: torch.device) -> None:
    """Raise ConfigError unless the device multiplies in fp8."""
    if device.type != "cuda":
        raise ConfigError(f"engine.quantization fp8 needs a CUDA device, not {device}: set it to int8 or none")
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        raise ConfigError(
            f"engine.quantization fp8 needs compute capability {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]} (Ada, Hopper); "
            f"{device} has {capability[0]}.{capability[1]}: set it to int8 or none"
        )
