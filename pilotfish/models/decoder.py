"""What an engine needs of a model: one forward over the rows of a step.

Legend: T rows of the step, R rows whose logits are wanted, V vocabulary, F captured layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice


@dataclass(frozen=True, slots=True)
class StepInput:
    """The rows of one step. Rows that belong to no slice are padding."""

    token_ids: Sequence[int]
    """[T]"""
    positions: Sequence[int]
    """[T]"""
    slices: Sequence[SequenceSlice]
    logit_rows: Sequence[int]
    """[R] rows whose next-token logits are wanted, ascending."""


class KVPool(Protocol):
    """The decoder's own storage for keys and values; blocks are numbered, block 0 is never handed out."""

    num_blocks: int

    @property
    def num_bytes(self) -> int: ...


class Decoder(Protocol):
    """A causal language model over a paged KV pool. Not thread-safe."""

    name: str
    """Which implementation runs: `transformers`, `native`."""
    vocab_size: int
    max_context_tokens: int
    dtype: torch.dtype
    device: torch.device
    features: Tensor
    """[T, F * hidden] of the last forward: its rows as they entered each of the F captured layers. Valid until
    the next forward; not set without capture."""
    last_hidden: Tensor
    """[R, hidden] of the last forward: the logit rows after the final norm. As features."""

    def capture(self, layers: Sequence[int]) -> None:
        """Keep from now on the residual stream that enters these layers (`features`), and `last_hidden`. The number of
        layers stands for what leaves the last one, normed.

        Who wants others than were wanted before gets a ConfigError, and a ValueError for a layer that the model lacks.
        """

    def allocate(self, num_blocks: int) -> KVPool:
        """A pool of num_blocks blocks; replaces the previous one."""

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy the keys and values of slots (from, to) in all layers: all are read before any is written.

        A slot is a block's number times BLOCK_SIZE plus the place in it.
        """

    def forward(self, step: StepInput) -> Tensor:
        """Run the rows, write their keys and values to the pool.

        Returns logits [R, V], which may be overwritten by the next forward.
        """
