"""Medusa heads (2401.10774): each predicts one token further ahead from the target's last hidden state.

Torch modules, named as in published checkpoints, whose layout is `medusa_head.{k}.0.linear`, `medusa_head.{k}.1`.

Shapes: R rows, K heads, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.models.store.tensor_folder import (
    HeadConfig,
    check_tensors,
    check_token_ids,
    positive,
    read_tensors,
    write_head,
)


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(HeadConfig):
    """Sizes of the heads, and the target they belong to."""

    num_heads: int
    """Head k predicts the token k + 2 places after the row's own: the next one is the target's to decide."""


def read_medusa_config(folder: Path) -> MedusaConfig:
    """Read config.json.

    Raises: ModelNotFoundError without one; UnsupportedModelError naming the field that is missing or wrong.
    """
    path = folder / "config.json"
    values = read_json(path)
    if values.get("medusa_num_heads") is None:
        raise UnsupportedModelError(f"{path} has no medusa_num_heads: {folder} holds no Medusa heads")
    if values.get("medusa_num_layers", 1) != 1:
        raise UnsupportedModelError(
            f"{path}: medusa_num_layers is {values['medusa_num_layers']}; one residual layer is supported"
        )

    number = partial(positive, values, path)
    return MedusaConfig(
        hidden_size=number("hidden_size"),
        vocab_size=number("vocab_size"),
        num_heads=number("medusa_num_heads"),
        draft_vocab_size=number("truncated_vocab_size", number("vocab_size")),
        target_model=str(values.get("base_model_name_or_path", "")),
        tokenizer_fingerprint=str(values.get("target_tokenizer_fingerprint", "")),
    )


def medusa_config_json(config: MedusaConfig) -> dict[str, Any]:
    """The config.json that read_medusa_config and vLLM understand."""
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "medusa_num_heads": config.num_heads,
        "medusa_num_layers": 1,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        # vLLM's name; token_map in the weights leads back to the target's token ids.
        "truncated_vocab_size": config.draft_vocab_size,
        "torch_dtype": "bfloat16",
        "base_model_name_or_path": config.target_model,
        "target_tokenizer_fingerprint": config.tokenizer_fingerprint,
    }


class ResidualBlock(nn.Module):
    """x + SiLU(linear(x)); with a linear of zeros it changes nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + functional.silu(self.linear(x))


class MedusaHeads(nn.Module):
    """K heads over one hidden state."""

    token_map: Tensor
    """int64 [Vd]: the target's token id of each draft id."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.config = config
        self.medusa_head = nn.ModuleList(
            nn.Sequential(
                ResidualBlock(config.hidden_size),
                nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False),
            )
            for _ in range(config.num_heads)
        )
        self.register_buffer("token_map", torch.arange(config.draft_vocab_size))

    def forward(self, last_hidden: Tensor) -> list[Tensor]:
        """K times logits [R, Vd] of last_hidden [R, H], the target's hidden states after its final norm."""
        return [head(last_hidden) for head in self.medusa_head]


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
