"""What an engine needs of an EAGLE-3 head: forwards over the same blocks and slots as its target's sequences.

The row of the token at position q takes the state of position q - 1: the target's features of it where
the target has computed it, else the hidden state that the head gave for it. Its keys and values lie in
slot q of the head's own pool. The token at position 0 has no state before it: nobody sees its slot.

Legend: T rows of a step, R rows whose logits are wanted, H hidden size, V_d draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pilotfish.models.decoder import KVPool, StepInput

FIRST_KEY = 1
"""Position of the first token that has a state before it."""


@dataclass(frozen=True, slots=True)
class HeadStep(StepInput):
    """The rows of one forward of a head. Its logit rows ascend; of the others only keys and values are computed."""

    states: Tensor
    """[T, 3H] features of the positions before the rows' own, or [T, H] hidden states of them."""


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """Both may be overwritten by the head's next forward."""

    logits: Tensor
    """float32 [R, V_d]"""
    hidden: Tensor
    """[R, H], the state of the logit rows' own positions for the next forward."""


class FeatureHead(Protocol):
    """A head in an engine. Not thread-safe."""

    draft_token_ids: Tensor
    """int64 [V_d]: the target's token id of each draft token. Replaced, not changed, where a version has others."""
    feature_layers: tuple[int, ...]
    """Layers of the target whose inputs the head takes."""
    feature_width: int
    """Values of a position: 3H for EAGLE-3, H for Medusa."""
    reads_text: bool
    """Whether it looks at the keys and values of earlier rows; else the last row is all that counts."""
    max_draft_tokens: int | None
    """The most draft tokens in a row; None: any number."""
    dtype: torch.dtype
    device: torch.device
    """Device of states."""

    def allocate(self, num_blocks: int) -> KVPool:
        """A pool of num_blocks blocks for the head's keys and values; replaces the previous one."""

    def forward(self, step: HeadStep) -> HeadOutput:
        """Run the rows, write their keys and values to the pool."""
