"""Quantised weights against their definition: what was quantised before comes back, the rest stays close."""

import pytest
import torch
from torch import Tensor

from pilotfish.models.native.quantise import Kind, pack, quantise, quantise_as
from tests.support.quantised_weights import dequantise

OUTPUTS, INPUTS = 64, 96
BLOCKS = INPUTS // 32


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(seed: int, outputs: int = OUTPUTS) -> Tensor:
    """bfloat16 [N, K] that nobody quantised before."""
    return torch.randn(outputs, INPUTS, generator=generator(seed)).bfloat16()


def from_q4_1(seed: int, outputs: int = OUTPUTS) -> Tensor:
    """bfloat16 weights [N, K] out of float16 scales and minima, 4 bits and both ends of each block in use."""
    shape = (outputs, BLOCKS, 1)
    scale = torch.rand(shape, generator=generator(seed)).mul(0.1).add(0.003).half()
    minimum = (-scale.float() * (4 + 8 * torch.rand(shape, generator=generator(seed + 1)))).half()
    q = torch.randint(0, 16, (outputs, BLOCKS, 32), generator=generator(seed + 2))
    q[..., 5], q[..., 20] = 0, 15
    return (scale.float() * q + minimum.float()).bfloat16().view(outputs, INPUTS)


def from_q8_0(seed: int, outputs: int = OUTPUTS) -> Tensor:
    """bfloat16 weights [N, K] out of float16 scales and 8 bits, the largest number 127 in each block."""
    scale = torch.rand((outputs, BLOCKS, 1), generator=generator(seed)).mul(0.01).add(0.0005).half()
    q = torch.randint(-127, 128, (outputs, BLOCKS, 32), generator=generator(seed + 1))
    q[..., 9] = -127
    return (scale.float() * q).bfloat16().view(outputs, INPUTS)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kind", "weights"), [("int4", from_q4_1), ("int8", from_q8_0)])
def test_what_was_quantised_before_comes_back_bit_for_bit(kind: Kind, weights: object, seed: int) -> None:
    weight = weights(10 * seed, 512)  # type: ignore[operator]
    quantised = quantise(weight, kind)
    assert torch.equal(dequantise(quantised), weight)
    assert quantised.is_exact.all()


@pytest.mark.parametrize(("kind", "levels"), [("int8", 254), ("int4", 15)])
def test_other_weights_stay_within_half_a_step(kind: Kind, levels: int) -> None:
    weight = noise(1)
    quantised = quantise(weight, kind)
    blocks = weight.float().view(OUTPUTS, BLOCKS, 32)
    span = 2 * blocks.abs().amax(-1) if kind == "int8" else blocks.amax(-1) - blocks.amin(-1)
    error = (dequantise(quantised).float() - weight.float()).view_as(blocks).abs().amax(-1)
    # A least-squares fit may trade its worst number for the others.
    bound = span / levels * (0.5 if kind == "int8" else 1.0) + blocks.abs().amax(-1) * 2**-8
    assert (error <= bound).all()
    assert not quantised.is_exact.any()


def test_four_bits_are_fitted_better_than_between_the_ends() -> None:
    weight = noise(2)
    blocks = weight.float().view(OUTPUTS, BLOCKS, 32)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    step = (high - low) / 15
    between_ends = ((blocks - low) / step).round() * step + low
    ours = dequantise(quantise(weight, "int4")).float().view_as(blocks)
    assert (ours - blocks).square().mean() < 0.9 * (between_ends - blocks).square().mean()


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("value", [0.0, 0.75, -3.0, 1e-30])
def test_blocks_of_one_value(kind: Kind, value: float) -> None:
    weight = torch.full((32, 64), value).bfloat16()
    restored = dequantise(quantise(weight, kind)).float()
    assert torch.isfinite(restored).all()
    assert (restored - weight.float()).abs().max() <= max(abs(value) / 100, 1e-7)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_packed_blocks_hold_every_weight_where_the_kernels_look(kind: Kind) -> None:
    quantised = quantise(noise(3), kind)
    blocks = pack(quantised, kind)
    assert blocks.shape == (OUTPUTS // 32, BLOCKS, 1088 if kind == "int8" else 640)
    for n, k in [(0, 0), (1, 0), (0, 1), (31, 31), (32, 95), (63, 50), (40, 17)]:
        block, output, place = blocks[n // 32, k // 32], n % 32, k % 32
        assert block[:64].view(torch.float16)[output] == quantised.scale[n, k // 32]
        if kind == "int8":
            q = block[64:].view(8, 32, 4)[place // 4, output, place % 4].int() - 128
        else:
            assert block[64:128].view(torch.float16)[output] == quantised.minimum[n, k // 32]
            byte = block[128:].view(4, 32, 4)[place // 8, output, place % 4].int()
            q = byte >> 4 if place % 8 >= 4 else byte & 15
        assert q == quantised.q[n, k], (n, k)


def test_lossless_packs_only_what_it_can_restore() -> None:
    for weight, kind in ((from_q4_1(7), "int4"), (from_q8_0(7), "int8")):
        found = quantise_as(weight, "lossless")
        assert found is not None
        assert found[1] == kind
        assert torch.equal(dequantise(found[0]), weight)
    assert quantise_as(noise(4), "lossless") is None
    spoilt = from_q4_1(8)
    spoilt[40] = noise(5)[40]  # behind what a first look takes in
    assert quantise_as(spoilt, "lossless") is None
