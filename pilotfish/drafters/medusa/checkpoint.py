"""Reading Medusa heads as their authors, vLLM and Pilotfish write them, and writing them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import torch
from torch import Tensor

from pilotfish.drafters.medusa.config import medusa_config_json, read_medusa_config
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.errors import ModelError
from pilotfish.models.store.tensor_folder import check_token_ids, fill_head, read_tensors, write_head

_AUTHORS_FILE = "medusa_lm_head.pt"


def load_medusa(folder: Path, *, hidden_size: int, vocab_size: int, dtype: torch.dtype = torch.bfloat16) -> MedusaHeads:
    """The heads in a folder, of a target with these sizes.

    Raises: ModelNotFoundError when a file is missing; ModelError for tensors that are missing, have the wrong shape
    or cannot be read; UnsupportedModelError for heads that the runtime cannot run.
    """
    config = read_medusa_config(folder, hidden_size=hidden_size, vocab_size=vocab_size)
    tensors = {_our_name(name, config.num_layers): tensor for name, tensor in _read(folder).items()}
    heads = MedusaHeads(config)
    if not any(name.endswith(".linear.bias") for name in tensors):  # vLLM's need not have them
        tensors |= {name: bias for name, bias in heads.state_dict().items() if name.endswith(".linear.bias")}
    if config.draft_vocab_size == config.vocab_size:
        tensors.setdefault("token_map", heads.token_map)
    if "token_map" in tensors:
        check_token_ids(tensors["token_map"], config.vocab_size, "token_map", folder)
        for name, tensor in tensors.items():
            is_whole = len(tensor) == config.vocab_size > config.draft_vocab_size
            if is_whole and name.endswith(f".{config.num_layers}.weight"):  # vLLM cuts it as it is read
                tensors[name] = tensor[tensors["token_map"]]
    return fill_head(heads, tensors, folder, dtype)


def save_medusa(heads: MedusaHeads, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the heads; see write_head."""
    write_head(folder, heads.state_dict(), medusa_config_json(heads.config), dtype)


def _our_name(name: str, num_layers: int) -> str:
    """The name in MedusaHeads. The authors' begin with the head's number; vLLM keeps blocks and projections apart."""
    name = re.sub(r"^(?=\d+\.)", "medusa_head.", name.removeprefix("medusa_heads."))
    name = re.sub(r"^blocks\.(\d+)\.layers\.(\d+)\.", r"medusa_head.\1.\2.linear.", name)
    return re.sub(r"^lm_heads\.(\d+)\.", rf"medusa_head.\1.{num_layers}.", name)


def _read(folder: Path) -> dict[str, Tensor]:
    path = folder / _AUTHORS_FILE
    if not path.is_file():
        return read_tensors(folder)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)  # runs no code of the file
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()
    ):
        raise ModelError(f"{path} holds no tensors by name")
    return found
