"""Reading Medusa heads as their authors and Pilotfish write them, and writing them. vLLM names tensors otherwise."""

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
    # The authors' names begin with the head's number.
    tensors = {re.sub(r"^(?=\d+\.)", "medusa_head.", name): tensor for name, tensor in _read(folder).items()}
    heads = MedusaHeads(config)
    if config.draft_vocab_size == config.vocab_size:
        tensors.setdefault("token_map", heads.token_map)
    heads = fill_head(heads, tensors, folder, dtype)
    check_token_ids(tensors["token_map"], config.vocab_size, "token_map", folder)
    return heads


def save_medusa(heads: MedusaHeads, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the heads; see write_head."""
    write_head(folder, heads.state_dict(), medusa_config_json(heads.config), dtype)


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
