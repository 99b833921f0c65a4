"""Weights in blocks of 32 inputs with their own scale, as the kernels' int8 and int4 formats keep them (weights.h).

Weights that were quantised in such blocks before they became bfloat16 (the Q8_0 and Q4_1 of GGUF files) are taken
back to exactly what they were: the quantised weights then round to the same bfloat16 numbers, bit for bit.

Legend: N outputs, K inputs, B blocks of 32 inputs; a block has [32] weights.
"""

from __future__ import annotations

from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pilotfish.config import Quantization

Kind = Literal["int8", "int4"]

BLOCK_INPUTS = 32
GROUP_OUTPUTS = 32
_CHUNK_BLOCKS = 1 << 12
"""Blocks at a time: what is computed on the way stays in the processor's caches."""
_INT8_MAX, _INT4_MAX = 127, 15
_REFINEMENTS = 3
_LOSSLESS_ORDER: tuple[Kind, ...] = ("int4", "int8")


class QuantisedWeight(NamedTuple):
    """A quantised weight: scale * q + minimum, in float32, rounded to bfloat16."""

    q: Tensor
    """[N, K] int8: -127 to 127 (int8) or 0 to 15 (int4)."""
    scale: Tensor
    """[N, B] float16."""
    minimum: Tensor
    """[N, B] float16; zeros in int8."""
    is_exact: Tensor
    """[N, B] bool: whether the block's bfloat16 weights are what they were."""


def quantise_as(weight: Tensor, quantization: Quantization) -> tuple[QuantisedWeight, Kind] | None:
    """Quantise bfloat16 [N, K] as the configuration says. None: they stay as they are."""
    if quantization == "int8" or quantization == "int4":
        return quantise(weight, quantization), quantization
    if quantization == "none" or weight.shape[1] % BLOCK_INPUTS:
        return None
    for kind in _LOSSLESS_ORDER:
        if quantise(weight[:GROUP_OUTPUTS], kind).is_exact.all():  # most tensors show what they are at once
            quantised = quantise(weight, kind)
            if quantised.is_exact.all():
                return quantised, kind
    return None


def quantise(weight: Tensor, kind: Kind) -> QuantisedWeight:
    """Quantise bfloat16 [N, K], K a multiple of 32: int8 to a scale, int4 to a scale and a minimum a block."""
    chunks = torch.split(weight.detach().reshape(-1, BLOCK_INPUTS), _CHUNK_BLOCKS)
    of_chunk = _int8_blocks if kind == "int8" else _int4_blocks
    q, scale, minimum, is_exact = (torch.cat(parts) for parts in zip(*map(of_chunk, chunks), strict=True))
    shape = (weight.shape[0], -1)
    return QuantisedWeight(q.view(shape), scale.view(shape), minimum.view(shape), is_exact.view(shape))


def pack_bfloat16(weight: Tensor) -> Tensor:
    """The numbers of Bfloat16Block of bfloat16 [N, K], N a multiple of 32: pairs of inputs, as int32
    [N / 32, K / 2, 2, 16] that is not contiguous."""
    pairs = weight.contiguous().view(torch.int32)
    return pairs.view(-1, 2, GROUP_OUTPUTS // 2, pairs.shape[1]).permute(0, 3, 1, 2)


def pack(weight: QuantisedWeight, kind: Kind) -> Tensor:
    """The bytes of Int8Block or Int4Block [N / 32, B], N a multiple of 32."""
    blocks = weight.scale.shape[1]
    inputs = 4 if kind == "int8" else 8  # of a word
    q = weight.q.view(-1, GROUP_OUTPUTS, blocks, BLOCK_INPUTS // inputs, inputs).permute(0, 2, 3, 1, 4)
    if kind == "int8":
        return torch.cat((_of_outputs(weight.scale), (q.view(torch.uint8) + 128).flatten(2)), dim=-1)
    nibbles = (q[..., :4] | q[..., 4:] << 4).view(torch.uint8)
    return torch.cat((_of_outputs(weight.scale), _of_outputs(weight.minimum), nibbles.flatten(2)), dim=-1)


def _of_outputs(values: Tensor) -> Tensor:
    """float16 [N, B] as bytes [N / 32, B, 64]: a block's numbers of 32 outputs."""
    return values.view(-1, GROUP_OUTPUTS, values.shape[1]).transpose(1, 2).contiguous().view(torch.uint8)


def _rounded(q: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    return torch.addcmul(minimum.float(), q, scale.float()).bfloat16()


def _int8_blocks(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of a QuantisedWeight of bfloat16 [B, 32]."""
    exact = blocks.float()
    scale = (exact.abs().amax(1) / _INT8_MAX).half()
    q = _int8_numbers(exact, scale)
    # Off by what the largest number's rounding hid from the scale at most, or never quantised before.
    error = (q * scale.float()[:, None] - exact).abs()
    rest = (error <= exact.abs() * 2**-6).all(1).nonzero()[:, 0]
    middle, is_exact = scale.clone(), torch.zeros(len(blocks), dtype=torch.bool)
    for offset in _nearest_first(8):
        if not len(rest):
            break
        candidate = _neighbour(middle[rest], offset)
        numbers = _int8_numbers(exact[rest], candidate)
        found = (_rounded(numbers, candidate[:, None], torch.zeros(1)) == blocks[rest]).all(1)
        scale[rest[found]], q[rest[found]] = candidate[found], numbers[found]
        is_exact[rest[found]] = True
        rest = rest[~found]
    return q.to(torch.int8), scale, torch.zeros_like(scale), is_exact


def _int8_numbers(blocks: Tensor, scale: Tensor) -> Tensor:
    divisor = torch.where(scale == 0, 1, scale.float())[:, None]
    return (blocks / divisor).round_().clamp_(-_INT8_MAX, _INT8_MAX)


def _int4_blocks(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of a QuantisedWeight of bfloat16 [B, 32]."""
    exact = blocks.float()
    low, high = exact.aminmax(dim=1)
    minimum, scale = low.half(), ((high - low) / _INT4_MAX).half()
    q = _int4_numbers(exact, scale, minimum)
    # As far from its value as the rounding of the two ends explains, or never quantised before.
    error = (torch.addcmul(minimum.float()[:, None], q, scale.float()[:, None]) - exact).abs()
    rest = (error <= (low.abs() + high.abs())[:, None] * 2**-7).all(1).nonzero()[:, 0]
    middle, is_exact = minimum.clone(), torch.zeros(len(blocks), dtype=torch.bool)
    for minimum_offset, scale_offset in product(_nearest_first(4), _nearest_first(1)):
        if not len(rest):
            break
        candidate = _neighbour(middle[rest], minimum_offset)
        fitted = _neighbour(_fitting_scale(exact[rest], q[rest], candidate), scale_offset)
        found = (_rounded(q[rest], fitted[:, None], candidate[:, None]) == blocks[rest]).all(1)
        scale[rest[found]], minimum[rest[found]] = fitted[found], candidate[found]
        is_exact[rest[found]] = True
        rest = rest[~found]
    other = (~is_exact).nonzero()[:, 0]
    if len(other):
        q[other], scale[other], minimum[other] = _least_squares(exact[other], scale[other], minimum[other])
    return q.to(torch.int8), scale, minimum, is_exact


def _int4_numbers(blocks: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    divisor = torch.where(scale == 0, 1, scale.float())[:, None]
    return ((blocks - minimum.float()[:, None]) / divisor).round_().clamp_(0, _INT4_MAX)


def _fitting_scale(blocks: Tensor, q: Tensor, minimum: Tensor) -> Tensor:
    """The scale [B] in the middle of those with which every number rounds to its weight, if there are any."""
    half_ulp = (blocks.view(torch.int32) & 0x7F800000).view(torch.float32) * 2**-8
    above = blocks - minimum.float()[:, None]
    least = ((above - half_ulp) / q).masked_fill_(q == 0, -torch.inf).amax(1)
    most = ((above + half_ulp) / q).masked_fill_(q == 0, torch.inf).amin(1)
    return ((least + most) / 2).half()


def _least_squares(blocks: Tensor, scale: Tensor, minimum: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers, scale and minimum in turn, each the best for the others; the best of all rounds."""
    q = _int4_numbers(blocks, scale, minimum)
    best = (q, scale, minimum)
    least = _squared_error(blocks, *best)
    for _ in range(_REFINEMENTS):
        mean_q, mean = q.mean(1, keepdim=True), blocks.mean(1, keepdim=True)
        centred = q - mean_q
        slope = (centred * blocks).sum(1) / centred.square().sum(1).clamp_min(1)
        scale, minimum = slope.half(), (mean[:, 0] - slope * mean_q[:, 0]).half()
        q = _int4_numbers(blocks, scale, minimum)
        error = _squared_error(blocks, q, scale, minimum)
        better = error < least
        least = torch.where(better, error, least)
        best = (
            torch.where(better[:, None], q, best[0]),
            torch.where(better, scale, best[1]),
            torch.where(better, minimum, best[2]),
        )
    return best


def _squared_error(blocks: Tensor, q: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    return (torch.addcmul(minimum.float()[:, None], q, scale.float()[:, None]) - blocks).square().sum(1)


def _nearest_first(most: int) -> list[int]:
    """0, 1, -1, 2, -2, ... up to `most`."""
    return sorted(range(-most, most + 1), key=abs)


def _neighbour(values: Tensor, offset: int) -> Tensor:
    """The float16 numbers `offset` steps away from zero."""
    return (values.view(torch.int16) + offset).view(torch.float16)
