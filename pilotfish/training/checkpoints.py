"""Where a training run stands, in one safetensors file that is replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pilotfish.errors import InvalidRequestError
from pilotfish.training.data.conversations import replacing

_FILE = "checkpoint.safetensors"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Steps taken, and the seconds that they took over all sessions."""

    step: int = 0
    elapsed_s: float = 0.0

    def after_step(self, seconds: float) -> RunProgress:
        return RunProgress(self.step + 1, self.elapsed_s + seconds)


def save_checkpoint(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, progress: RunProgress) -> None:
    """Write weights, optimiser and progress. Raises OSError when the disk is full; the old checkpoint stays then."""
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
    metadata = {"step": str(progress.step), "elapsed_s": str(progress.elapsed_s)}
    with replacing(folder / _FILE) as temporary:
        # Storage that two names share (tied weights) is refused by the library: copy.
        save_file({name: tensor.detach().clone() for name, tensor in tensors.items()}, temporary, metadata=metadata)


def load_checkpoint(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> RunProgress:
    """Restore what save_checkpoint wrote; the beginning when there is none.

    Raises: InvalidRequestError when the checkpoint belongs to another drafter.
    """
    path = folder / _FILE
    if not path.is_file():
        return RunProgress()
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 -- no mapping
        module.load_state_dict(_below(tensors, "module."))
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in _below(tensors, "optimizer.").items():
            index, _, field = name.partition(".")
            state.setdefault(int(index), {})[field] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise InvalidRequestError(
            f"{path} is a checkpoint of another run ({error}): delete it or choose another folder"
        ) from error
    return RunProgress(int(metadata["step"]), float(metadata["elapsed_s"]))


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
