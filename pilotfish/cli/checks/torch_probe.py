"""A process of its own that says what torch can use here, as JSON: `python -m pilotfish.cli.checks.torch_probe cpu`.

Importing torch takes seconds and may end the process (a wheel for another processor, a broken driver).
"""

from __future__ import annotations

import json
import sys

import torch


def probe(devices: list[str]) -> dict[str, object]:
    """The version, the GPUs with their memory, and for each of `devices` why it cannot be used (empty: it can)."""
    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "version": torch.__version__,
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.total_memory} for gpu in gpus],
        "failures": {device: _failure(device) for device in devices},
    }


def _failure(device: str) -> str:
    if device == "auto":  # whatever is there
        return ""
    try:
        torch.ones(1, device=device).add_(1).cpu()
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1:])))
