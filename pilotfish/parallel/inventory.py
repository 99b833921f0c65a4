"""What a model consists of and how it is cut, as a torch-free process learns it: from a process that has torch."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import msgspec

from pilotfish.errors import ModelError, error_named
from pilotfish.parallel.sizes import Cut

MODULE = "pilotfish.parallel.take_inventory"


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the whole model."""

    name: str
    shape: tuple[int, ...]
    cut: Cut

    @property
    def is_layer_linear(self) -> bool:
        """Whether it is a matrix that is multiplied in a layer: what int8 and fp8 quantise."""
        return len(self.shape) > 1 and self.cut in (Cut.ROWS, Cut.COLUMNS)


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """What a layer keeps of a token: two vectors (key, value) for each head."""

    num_kv_heads: int
    head_dim: int


class Inventory(msgspec.Struct, frozen=True):
    """All of a model that a plan of its memory needs."""

    architecture: str
    """transformers' class."""
    parameters: list[Parameter]
    """Tied ones once."""
    layers: list[Layer]

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(parameter.shape) for parameter in self.parameters)


class InventoryFailure(msgspec.Struct, frozen=True):
    """Why there is none."""

    kind: str
    """Class name of the PilotfishError."""
    failure: str


def take_inventory(folder: Path) -> Inventory:
    """Of the model that a folder's config.json describes; weights are not needed. Takes seconds: it imports torch.

    Raises: the PilotfishError that says why it cannot be run in ranks.
    """
    process = subprocess.run([sys.executable, "-m", MODULE, str(folder)], capture_output=True, text=True, check=False)
    try:
        if process.returncode == 0:
            return msgspec.json.decode(process.stdout, type=Inventory)
        failure = msgspec.json.decode(process.stdout, type=InventoryFailure)
    except msgspec.MsgspecError:
        last_line = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(f"{folder} cannot be looked through: {last_line}") from None
    raise error_named(failure.kind, failure.failure)
