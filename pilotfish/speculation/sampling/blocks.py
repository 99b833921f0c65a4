"""Logits with the maximum of each block of tokens: what makes argmax, top-k and sampling cheap.

One pass over the vocabulary finds the block maxima; everything after looks into a few blocks.
On a CPU this beats torch.argmax and torch.topk several times over.

Shapes: R rows, V vocabulary, B = ceil(V / BLOCK_SIZE) blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pilotfish.speculation.sampling.noise import BLOCK_SIZE
from pilotfish.speculation.sampling.transfer import to_device

_ID_MASK = 2**32 - 1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BlockedLogits:
    """Rows of float32 logits and their block maxima. Nothing is mutated."""

    logits: Tensor  # [R, V] float32
    block_max: Tensor  # [R, B] float32
    token_ids: Tensor | None = None  # int64 [R, V], where the columns are each row's likeliest tokens, in this order

    @classmethod
    def of(cls, logits: Tensor, token_ids: Tensor | None = None) -> BlockedLogits:
        """Blocks of logits [R, V] of any float dtype; float32 is not copied. token_ids: as the field."""
        logits = logits.float()
        if token_ids is not None:
            return cls(logits, logits[:, :1], token_ids)
        num_whole = logits.shape[1] // BLOCK_SIZE
        num_tail = logits.shape[1] - num_whole * BLOCK_SIZE
        maxima = logits[:, : num_whole * BLOCK_SIZE].view(logits.shape[0], num_whole, BLOCK_SIZE).amax(-1)
        if num_tail:
            maxima = torch.cat((maxima, logits[:, -num_tail:].amax(-1, keepdim=True)), 1)
        return cls(logits, maxima)

    @property
    def num_rows(self) -> int:
        return self.logits.shape[0]

    @property
    def vocab_size(self) -> int:
        return self.logits.shape[1]

    @property
    def num_blocks(self) -> int:
        return self.block_max.shape[1]

    def select(self, rows: list[int]) -> BlockedLogits:
        """The rows, in this order; itself when that is all of them."""
        if rows == list(range(self.num_rows)):
            return self
        index = to_device(rows, torch.int64, self.logits.device)
        token_ids = None if self.token_ids is None else self.token_ids[index]
        return BlockedLogits(self.logits[index], self.block_max[index], token_ids)

    def max(self) -> Tensor:
        """The greatest logit [R, 1]."""
        return self.block_max.amax(-1, keepdim=True)

    def argmax(self) -> Tensor:
        """int64 [R]: the token with the greatest logit, the lowest id among equals."""
        if self.token_ids is not None:
            return self.token_ids[:, 0]
        token_ids, logits = self.open_blocks(self.block_max.argmax(-1, keepdim=True))
        return token_ids.gather(1, logits.argmax(-1, keepdim=True)).squeeze(1)

    def open_blocks(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids and logits [R, n * min(BLOCK_SIZE, V)] of blocks [R, n]; ids past V have logit -inf."""
        places = torch.arange(min(BLOCK_SIZE, self.vocab_size), device=blocks.device)
        token_ids = (blocks.unsqueeze(-1) * BLOCK_SIZE + places).flatten(1)
        if self.vocab_size % BLOCK_SIZE == 0 or self.num_blocks == 1:
            return token_ids, self.logits.gather(1, token_ids)
        logits = self.logits.gather(1, token_ids.clamp(max=self.vocab_size - 1))
        return token_ids, logits.masked_fill(token_ids >= self.vocab_size, -torch.inf)

    def rank(self, k: int) -> tuple[Tensor, Tensor]:
        """The k greatest logits and their token ids, [R, min(k, V)], descending, equals by ascending id."""
        if self.token_ids is not None:
            return self.logits[:, :k], self.token_ids[:, :k]
        k = min(k, self.vocab_size)
        if 4 * k > self.num_blocks:
            token_ids = torch.arange(self.vocab_size, device=self.logits.device).expand_as(self.logits)
            keys = order_keys(self.logits, token_ids)
        else:
            # The k first tokens lie in the k first blocks: each such block leads with a token
            # that comes before every token of any later block.
            block_ids = torch.arange(self.num_blocks, device=self.logits.device)
            blocks = token_ids_of(greatest(order_keys(self.block_max, block_ids), k))
            token_ids, logits = self.open_blocks(blocks)
            keys = order_keys(logits, token_ids)
        token_ids = token_ids_of(greatest(keys, k))
        return self.logits.gather(1, token_ids), token_ids


def order_keys(values: Tensor, token_ids: Tensor) -> Tensor:
    """int64 keys whose descending order is descending value, then ascending id: a sort without ties."""
    # + 0.0 makes -0.0 equal 0.0. Negative floats order backwards as integers until flipped.
    bits = (values + 0.0).view(torch.int32)
    ordered = bits ^ ((bits >> 31) & _INT32_MAX)
    return (ordered.long() << 32) | (_ID_MASK - token_ids)


def greatest(keys: Tensor, k: int) -> Tensor:
    """The k greatest of the order_keys [R, C] of each row, descending: int64 [R, k]."""
    if keys.device.type != "cpu":
        return keys.topk(k).values
    # torch takes 10 to 30 times as long for many of a vocabulary's (measured): one request would hold up a step.
    ascending = np.sort(keys.numpy(), axis=-1)
    return torch.from_numpy(ascending[:, : -k - 1 : -1].copy())


def token_ids_of(keys: Tensor) -> Tensor:
    """The ids in order_keys."""
    return _ID_MASK - (keys & _ID_MASK)


def block_sums(values: Tensor) -> Tensor:
    """float64 [R, 1]: the sum of values [R, V] over each row, bitwise the same whatever R is.

    A plain sum over a single long row is split among threads, and rounds by their number.
    """
    num_padding = -values.shape[1] % BLOCK_SIZE
    if num_padding:
        values = functional.pad(values, (0, num_padding))
    sums = values.view(values.shape[0], -1, BLOCK_SIZE).sum(-1)
    return sums.sum(-1, keepdim=True, dtype=torch.float64)
