"""Reading and writing trained exits: model.safetensors and config.json."""

from __future__ import annotations

from pathlib import Path

import torch

from pilotfish.drafters.early_exit.config import exit_config_json, read_exit_config
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.models.store.tensor_folder import check_token_ids, fill_head, read_tensors, write_head


def load_exit(folder: Path, target: LoadedModel, *, dtype: torch.dtype = torch.bfloat16) -> ExitHead:
    """The exit in a folder, for a target whose weights may be elsewhere already.

    Raises: ModelNotFoundError when a file is missing; ModelError for another target's exit, and for tensors that are
    missing, have the wrong shape or cannot be read; UnsupportedModelError for what the runtime cannot run.
    """
    config = read_exit_config(folder)
    config.check_target(HeadTarget.of_model(target), source=str(folder))
    tensors = read_tensors(folder)
    head = fill_head(ExitHead(config, target.model), tensors, folder, dtype)
    check_token_ids(tensors["token_map"], config.vocab_size, "token_map", folder)
    return head


def save_exit(head: ExitHead, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write an exit; see write_head."""
    write_head(folder, head.state_dict(), exit_config_json(head.config), dtype)
