"""Medusa heads in an engine, as any head on the target's hidden states.

A head sees the last hidden state alone, whatever is drafted between: nothing is cached, and the state that the next
token of a draft starts from is the same one, with the number of the head that guesses it.

Legend: T rows of a step, R rows whose logits are wanted, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

import torch

from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.models.feature_head import HeadOutput, HeadStep
from pilotfish.models.packing import pack_linears
from pilotfish.speculation.sampling.transfer import to_device


class NoPool:
    """A KV pool of nothing."""

    num_bytes = 0

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks


class MedusaHead:
    """See FeatureHead. Takes over the heads, which are where and in the dtype that states come."""

    def __init__(self, heads: MedusaHeads, feature_layers: tuple[int, ...], *, deterministic: bool = False) -> None:
        """feature_layers: the target's number of layers, which stands for the state behind all of them. deterministic:
        what a row comes to does not depend on the rows beside it."""
        self.draft_token_ids = heads.token_map
        self.feature_layers = feature_layers
        self.feature_width = heads.config.hidden_size
        self.reads_text = False
        self.max_draft_tokens: int | None = heads.config.num_heads
        parameter = next(heads.parameters())
        self.dtype = parameter.dtype
        self.device = parameter.device
        self._heads = heads
        if self.device.type == "cpu":
            pack_linears(heads, deterministic=deterministic)

    def allocate(self, num_blocks: int) -> NoPool:
        return NoPool(num_blocks)

    @torch.inference_mode()
    def forward(self, step: HeadStep) -> HeadOutput:
        states = step.states
        if states.shape[1] == self.feature_width:  # of the target: the first head is next
            states = torch.cat((states, states.new_zeros(len(states), 1)), dim=1)
        rows = states[to_device(step.logit_rows, torch.int64, self.device)]
        # All drafts of a step are as long: they grow together.
        number = int(rows[0, -1]) if len(rows) else 0
        logits = self._heads.logits(number, rows[:, :-1]).float()
        return HeadOutput(logits, torch.cat((rows[:, :-1], rows[:, -1:] + 1), dim=1))
