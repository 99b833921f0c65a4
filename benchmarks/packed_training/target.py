"""The target over packed rows: hidden states and what its distribution is computed from.

Shapes: B rows, T tokens of a row, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from packed_training.tokens import Rows
from pilotfish.models.loading import LoadedModel

_LOGIT_ROWS = 4096
"""Positions whose logits exist at once."""


@dataclass(frozen=True, slots=True)
class TargetStates:
    """What the target computed of rows."""

    inputs: Mapping[int, Tensor]
    """What enters each layer, [B, T, H]."""
    last_hidden: Tensor
    """After the final norm, [B, T, H]."""
    log_mass: Tensor
    """The logsumexp of the logits, float32 [B, T]."""
    choices: Tensor
    """The likeliest token after each position, int64 [B, T]."""


class PackedTarget:
    """Runs the target's layers, and others of their kind, over rows of several conversations."""

    def __init__(self, loaded: LoadedModel, layers: Collection[int]) -> None:
        """layers: whose inputs are kept."""
        self.loaded = loaded
        self._layers = frozenset(layers)
        loaded.model.set_attn_implementation("sdpa")
        self._body: Any = loaded.model.get_decoder()
        self._output: Any = loaded.model.get_output_embeddings()

    def run_layer(self, layer: nn.Module, hidden: Tensor, **context: Any) -> Tensor:
        """[B, T, H] out of a layer of the target's kind, for hidden states [B, T, H] and what `context` gives."""
        output: Tensor = layer(
            hidden,
            attention_mask=context["mask"],
            position_ids=context["positions"],
            position_embeddings=context["rotary"],
        )
        return output

    @torch.no_grad()
    def states(self, rows: Rows) -> TargetStates:
        hidden = self._body.embed_tokens(rows.token_ids)
        context = self.context(rows, hidden)
        inputs = {}
        for index, layer in enumerate(self._body.layers):
            if index in self._layers:
                inputs[index] = hidden
            hidden = self.run_layer(layer, hidden, **context)
        last = self._body.norm(hidden)
        masses, choices = [], []
        for part in last.flatten(0, 1).split(_LOGIT_ROWS):
            logits = self._output(part)
            masses.append(logits.float().logsumexp(-1))
            choices.append(logits.argmax(-1))
        shape = rows.token_ids.shape
        return TargetStates(inputs, last, torch.cat(masses).view(shape), torch.cat(choices).view(shape))

    def context(self, rows: Rows, hidden: Tensor) -> dict[str, Any]:
        """What run_layer takes beside hidden states [B, T, H]."""
        rotary = self._body.rotary_emb(hidden, rows.positions)
        return {"mask": rows.sees.unsqueeze(1), "positions": rows.positions, "rotary": rotary}
