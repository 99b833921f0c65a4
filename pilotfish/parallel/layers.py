"""The parts of a layer that differ from the whole one.

A linear that is cut by rows needs no module of its own: it is a smaller linear, followed by one that is cut by
columns. Legend: T rows of a step, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pilotfish.parallel.group import RankGroup
from pilotfish.parallel.sizes import bounds

SHARD = "shard"
"""The plain module inside; its parameters have the name of the whole one's, but for this part."""


class RowParallelLinear(nn.Module):
    """A linear of which each rank has some inputs; takes [..., in / N], gives the whole [..., out]."""

    def __init__(self, linear: nn.Linear, group: RankGroup) -> None:
        super().__init__()
        part = linear.in_features // group.num_ranks
        self.shard = nn.Linear(
            part, linear.out_features, bias=False, device=linear.weight.device, dtype=linear.weight.dtype
        )
        self.bias = linear.bias
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        total = self._group.add(self.shard(x))
        return total if self.bias is None else total + self.bias


class ParallelHead(nn.Module):
    """An output projection of which each rank has some tokens; gives [..., V] on rank 0."""

    def __init__(self, linear: nn.Linear, group: RankGroup) -> None:
        super().__init__()
        self._vocab_size = linear.out_features
        self.shard = column_parallel(linear, group)
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        return self._group.gather(self.shard(x))[..., : self._vocab_size]


class ParallelEmbedding(nn.Module):
    """An embedding of which each rank has some tokens; takes ids [...], gives [..., width]."""

    def __init__(self, embedding: nn.Embedding, group: RankGroup) -> None:
        super().__init__()
        part = bounds(embedding.num_embeddings, group.rank, group.num_ranks)
        self._start = part.start
        self._size = part.padded
        self.shard = nn.Embedding(
            part.padded, embedding.embedding_dim, device=embedding.weight.device, dtype=embedding.weight.dtype
        )
        self._group = group

    def forward(self, token_ids: Tensor) -> Tensor:
        local = token_ids - self._start
        elsewhere = (local < 0) | (local >= self._size)
        rows: Tensor = self.shard(local.masked_fill(elsewhere, 0))
        # One rank has the token and the others add zeros: exact in any order.
        return self._group.add(rows.masked_fill(elsewhere[..., None], 0))


def column_parallel(linear: nn.Linear, group: RankGroup) -> nn.Linear:
    """A linear with a rank's part of the outputs, not loaded yet."""
    part = bounds(linear.out_features, group.rank, group.num_ranks).padded
    has_bias = linear.bias is not None
    weight = linear.weight
    with torch.device(weight.device):
        return nn.Linear(linear.in_features, part, bias=has_bias, dtype=weight.dtype)
