"""`python -m pilotfish.parallel.take_inventory FOLDER`: what the model consists of, as JSON; built without weights."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import torch

from pilotfish.errors import PilotfishError
from pilotfish.models.decoder_transformers import attention_shapes
from pilotfish.parallel.inventory import Inventory, InventoryFailure, Layer, Parameter
from pilotfish.parallel.plan import parameter_cuts
from pilotfish.parallel.sharded_model import empty_model


def inventory_of(folder: Path) -> Inventory:
    """Raises ModelError, UnsupportedModelError."""
    model = empty_model(folder, torch.bfloat16)
    return Inventory(
        architecture=type(model).__name__,
        parameters=[Parameter(*entry) for entry in parameter_cuts(model)],
        layers=[Layer(shape.num_kv_heads, shape.head_dim) for shape in attention_shapes(model)],
    )


def main() -> int:
    """Print the inventory, or why there is none."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(inventory_of(Path(sys.argv[1]))))
    except PilotfishError as error:
        sys.stdout.buffer.write(msgspec.json.encode(InventoryFailure(type(error).__name__, str(error))))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
