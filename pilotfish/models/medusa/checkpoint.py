"""Reading and writing Medusa heads in the published layout: `medusa_head.{k}.0.linear`, `medusa_head.{k}.1`."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from pilotfish.models.medusa.config import medusa_config_json, read_medusa_config
from pilotfish.models.medusa.module import MedusaHeads
from pilotfish.models.store.tensor_folder import check_tensors, check_token_ids, read_tensors, write_head


def load_medusa(folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> MedusaHeads:
    """The heads in a folder.

    Raises: ModelNotFoundError when a file is missing; ModelError for tensors that are missing, have the wrong shape
    or cannot be read; UnsupportedModelError for heads that the runtime cannot run.
    """
    config = read_medusa_config(folder)
    # Some published files leave the module's name out.
    tensors = {re.sub(r"^(?=\d+\.)", "medusa_head.", name): tensor for name, tensor in read_tensors(folder).items()}
    heads = MedusaHeads(config)
    if config.draft_vocab_size == config.vocab_size:
        tensors.setdefault("token_map", heads.token_map)
    check_tensors(heads.state_dict(), tensors, folder)
    check_token_ids(tensors["token_map"], config.vocab_size, "token_map", folder)
    heads.load_state_dict(tensors)
    return heads.to(dtype).eval().requires_grad_(False)


def save_medusa(heads: MedusaHeads, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the heads; see write_head."""
    write_head(folder, heads.state_dict(), medusa_config_json(heads.config), dtype)
