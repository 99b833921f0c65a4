"""Counter-based random numbers: pure functions of (seed, position, stream, token id).

Nothing is stored, so any subset of tokens, in any order and on any device, sees the same noise.
The hash is SplitMix64 (Steele, Lea, Flood 2014) run as a counter generator, in int64 that wraps.

The Gumbel noise of a vocabulary is built in blocks of BLOCK_SIZE token ids. The least of n
independent Exp(1) variables is Exp(1)/n, sits at a uniform place, and by memorylessness the others
exceed it by fresh Exp(1) variables. So a block draws its minimum and the place of it from one hash,
each other token its excess from another, and G = -log(E) is i.i.d. Gumbel over token ids. What this
buys: `block_gumbel` knows the greatest noise of a block without touching its tokens, which lets
`coupling.pick` skip, exactly, nearly all of the vocabulary.

Shapes: R rows, C tokens per row, B blocks.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.speculation.sampling.transfer import to_device

BLOCK_SIZE = 64
_BLOCK_BITS = 6
_BLOCK_MASK = BLOCK_SIZE - 1


class Stream(enum.IntEnum):
    """Independent random numbers for independent decisions about one position."""

    COUPLED = 0
    """The stream that drafter and target share: what couples them."""
    DRAFT = 1
    ACCEPT = 2
    RECOVER = 3
    """Recovered, bonus and plain tokens in rejection mode."""


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_TOKEN_STRIDE = _signed(0xD1B54A32D192ED03)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _mix_(x: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place: a bijection in which each input bit moves half of the output bits."""
    # int64 shifts right arithmetically: the mask clears the copies of the sign bit.
    x.bitwise_xor_((x >> 30).bitwise_and_(2**34 - 1)).mul_(_MIX_1)
    x.bitwise_xor_((x >> 27).bitwise_and_(2**37 - 1)).mul_(_MIX_2)
    return x.bitwise_xor_((x >> 31).bitwise_and_(2**33 - 1))


def row_keys(seeds: Sequence[int], positions: Sequence[int], stream: Stream, device: torch.device) -> Tensor:
    """int64 [R, 1]: the key of each row's random numbers; seeds are unsigned 64-bit."""
    keys, places = to_device([[_signed(seed) for seed in seeds], positions], torch.int64, device)
    keys = _mix_(keys + _signed((int(stream) + 1) * _TOKEN_STRIDE))
    return _mix_(keys + places * _GOLDEN).unsqueeze(1)


def uniform(keys: Tensor, count: int) -> Tensor:
    """float64 [R, count] in (0, 1): independent uniform numbers per key, the same ones whatever their count."""
    return _to_uniform(_mix_(keys + torch.arange(1, count + 1, device=keys.device) * _TOKEN_STRIDE))


def gumbel(keys: Tensor, token_ids: Tensor) -> Tensor:
    """float32 [R, C]: standard Gumbel noise of token_ids [R, C] (or [1, C]) under keys [R, 1]."""
    minimum, place = _block_minimum(keys, token_ids >> _BLOCK_BITS)
    excess = _to_exponential(_mix_(keys + (token_ids + 1) * _TOKEN_STRIDE))
    excess.masked_fill_(place == (token_ids & _BLOCK_MASK), 0.0)
    return _to_gumbel(minimum + excess)


def block_gumbel(keys: Tensor, num_blocks: int) -> Tensor:
    """float32 [R, B]: the greatest noise among the BLOCK_SIZE token ids of each of the first B blocks."""
    blocks = torch.arange(num_blocks, device=keys.device).unsqueeze(0)
    return _to_gumbel(_block_minimum(keys, blocks)[0])


def _block_minimum(keys: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The least exponential of each block, float64, and its place in the block, int64."""
    # Counters below zero: tokens count from one up, so no two uses share a hash.
    bits = _mix_(keys - (blocks + 1) * _TOKEN_STRIDE)
    return _to_exponential(bits).div_(BLOCK_SIZE), bits & _BLOCK_MASK


def _to_uniform(bits: Tensor) -> Tensor:
    # The top 52 bits and a half: exact in float64, never 0, never 1. The low bits stay free for `place`.
    return ((bits >> 12) & (2**52 - 1)).double().add_(0.5).mul_(2.0**-52)


def _to_exponential(bits: Tensor) -> Tensor:
    return _to_uniform(bits).log_().neg_()


def _to_gumbel(exponential: Tensor) -> Tensor:
    # Rounding to float32 hides last-bit differences between libraries' float64 logarithms.
    return exponential.log().neg_().float()
