"""What is trained of an exit (2404.18911, section 3.1): a decoder layer of the target's own kind, a norm and an output
projection over the draft vocabulary.

Shapes: T rows, R rows whose logits are wanted, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pilotfish.drafters.early_exit.config import ExitConfig
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.native.layout import MODEL_TYPES


class ExitHead(nn.Module):
    """Runs on what leaves the target's layer before the exit."""

    token_map: Tensor
    """int64 [Vd]: the target's token id of each draft id."""

    def __init__(self, config: ExitConfig, target: PreTrainedModel) -> None:
        """target: gives classes and config, no weights but the final norm's. Raises UnsupportedModelError."""
        super().__init__()
        kind = target.config.model_type
        if kind not in MODEL_TYPES:
            raise UnsupportedModelError(
                f"a trained exit is for targets of the architectures {', '.join(sorted(MODEL_TYPES))}, and this one is "
                f"{kind!r}: leave target.drafter.model empty, for a bare exit"
            )
        body: Any = target.get_decoder()
        self.config = config
        self.block: nn.Module = type(body.layers[config.exit_layer])(body.config, config.exit_layer)
        self.norm: Any = copy.deepcopy(body.norm)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("token_map", torch.arange(config.draft_vocab_size))

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, Vd] of what leaves the block [R, H]."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits


def run_layer(layer: nn.Module, target: PreTrainedModel, states: Tensor, positions: Tensor, **attention: Any) -> Tensor:
    """[T, H] out of one of the target's layers, or one of their kind, for states [T, H] at positions int64 [T].

    attention: what the attention in the target's config takes; SDPA sees all rows before.
    """
    body: Any = target.get_decoder()
    output: Tensor = layer(
        states[None],
        attention_mask=None,
        position_ids=positions[None],
        position_embeddings=body.rotary_emb(states[None], positions[None]),
        **attention,
    )
    return output[0]
