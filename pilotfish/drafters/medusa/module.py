"""Medusa heads as torch modules, named as in the authors' checkpoints below `medusa_head.`.

Shapes: R rows, K heads, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pilotfish.drafters.medusa.config import MedusaConfig


class ResidualBlock(nn.Module):
    """The block x + SiLU(linear(x)); with a linear of zeros it changes nothing."""

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
                *(ResidualBlock(config.hidden_size) for _ in range(config.num_layers)),
                nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False),
            )
            for _ in range(config.num_heads)
        )
        self.register_buffer("token_map", torch.arange(config.draft_vocab_size))

    def logits(self, head: int, last_hidden: Tensor) -> Tensor:
        """[R, Vd] of one head. last_hidden: [R, H], the target's hidden states after its final norm."""
        result: Tensor = self.medusa_head[head](last_hidden)
        return result
