"""A model without most of its layers, for who needs only what lies around them: whatever its size, it fits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.parallel.checkpoint import Checkpoint
from pilotfish.parallel.sharded_model import empty_model, fill_buffers, stored_buffers
from pilotfish.parallel.sizes import TensorCut


def load_layers(
    folder: Path, layers: Collection[int], *, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """The model of a folder with those of its layers alone, and all that is in none (embeddings, norms, output
    projection); the other layers stay on the meta device. Reads no other tensor.

    Raises: ModelError for tensors that are missing or do not fit; UnsupportedModelError for those that are nothing
    without a scale, and for a model without a list of layers.
    """
    model = empty_model(folder, dtype)
    is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    device = torch.device(device)
    fill_buffers(model, device)
    with Checkpoint(folder) as checkpoint:
        tensors = {
            name: checkpoint.read(name, TensorCut.WHOLE, 0, 1, tensor.dtype).to(device)
            for name, tensor in _wanted(model, layers)
        }
    try:
        model.load_state_dict(tensors, strict=False, assign=True)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise ModelError(f"the weights in {folder} do not fit its config.json: {first}") from error
    if is_tied:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    return model.eval().requires_grad_(False)


def _wanted(model: PreTrainedModel, layers: Collection[int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the checkpoint that belong to these layers, or to none."""
    body: Any = model.get_decoder()
    modules = getattr(body, "layers", None)
    if not isinstance(modules, nn.ModuleList):
        raise UnsupportedModelError(f"{type(model).__name__} has no list of layers to take some from")
    name = next(name for name, module in model.named_modules() if module is modules)
    unread = tuple(f"{name}.{index}." for index in range(len(modules)) if index not in layers)
    for tensor_name, tensor in chain(model.named_parameters(), stored_buffers(model)):
        if not tensor_name.startswith(unread):
            yield tensor_name, tensor
