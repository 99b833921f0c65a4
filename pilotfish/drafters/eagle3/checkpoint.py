"""Reading and writing EAGLE-3 heads in the published layout: model.safetensors and config.json."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from pilotfish.drafters.eagle3.config import Eagle3Config, eagle3_config_json, read_eagle3_config
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.errors import ModelError
from pilotfish.models.store.tensor_folder import check_token_ids, fill_head, read_tensors, write_head

_EMBEDDINGS = "embed_tokens.weight"
_OTHER_NAMES = (("model.", ""), ("layers.0.", "midlayer."))
"""Prefixes that converters of published heads use, and ours, in the order in which they are replaced."""


def load_eagle3(folder: Path, *, num_target_layers: int, dtype: torch.dtype = torch.bfloat16) -> Eagle3Head:
    """The head in a folder.

    Raises: ModelNotFoundError when a file is missing; ModelError for tensors that are missing, have the wrong shape
    or cannot be read; UnsupportedModelError for a head that the runtime cannot run.
    """
    config = read_eagle3_config(folder, num_target_layers=num_target_layers)
    tensors = {_own_name(name): tensor for name, tensor in read_tensors(folder).items()}
    head = Eagle3Head(config)
    if config.draft_vocab_size == config.vocab_size:
        # Heads over the whole vocabulary may leave the maps out.
        tensors.setdefault("d2t", head.d2t)
        tensors.setdefault("t2d", head.t2d)
    if _EMBEDDINGS in tensors:
        head.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
    head = fill_head(head, tensors, folder, dtype)
    _check_vocabulary(config, tensors["d2t"], tensors["t2d"], folder)
    return head


def save_eagle3(head: Eagle3Head, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head; see write_head."""
    write_head(folder, head.state_dict(), eagle3_config_json(head.config), dtype)


def _own_name(name: str) -> str:
    for prefix, own in _OTHER_NAMES:
        if name.startswith(prefix):
            name = own + name.removeprefix(prefix)
    return name


def _check_vocabulary(config: Eagle3Config, d2t: Tensor, t2d: Tensor, folder: Path) -> None:
    if t2d.dtype != torch.bool:
        raise ModelError(f"the head in {folder}: t2d must be bool; it is {t2d.dtype}")
    token_ids = torch.arange(len(d2t)) + d2t
    check_token_ids(token_ids, config.vocab_size, "d2t", folder)
    if not torch.equal(token_ids.sort().values, t2d.nonzero().squeeze(1)):
        raise ModelError(f"the head in {folder}: d2t and t2d name different tokens")
