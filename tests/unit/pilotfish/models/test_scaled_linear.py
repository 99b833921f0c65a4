"""8-bit linears: round trips, what they compute, and what they leave alone."""

import pytest
import torch
from torch import Tensor, nn

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.scaled_linear import ScaledLinear, WeightFormat, choose_product, quantise_linears, quantise_rows
from tests.support.tiny_llama import tiny_llama

CPU = torch.device("cpu")
FORMATS: list[WeightFormat] = ["int8", "fp8"]
WORST = {"int8": 0.5 / 127, "fp8": 2.0**-4}
"""Largest rounding of a row: int8's half step of the largest value, fp8's three bits of each value."""


def rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_round_trip_is_off_by_no_more_than_the_format_rounds(weight_format: WeightFormat) -> None:
    original = rows(1, 40, 64) * torch.logspace(-6, 6, 40)[:, None]
    values, scales = quantise_rows(original, weight_format)
    again = values.float() * scales
    bound = original.abs().amax(-1, keepdim=True) if weight_format == "int8" else original.abs()
    smallest = scales * 2.0**-9 if weight_format == "fp8" else 0  # below its normal numbers fp8 has a fixed step
    assert bool(((again - original).abs() <= bound * WORST[weight_format] * 1.001 + smallest).all())
    assert bool(values.float().isfinite().all())


@pytest.mark.parametrize("weight_format", FORMATS)
def test_rows_of_zeros_stay_zeros(weight_format: WeightFormat) -> None:
    values, scales = quantise_rows(torch.zeros(2, 16), weight_format)
    assert not (values.float() * scales).any()


@pytest.mark.parametrize("weight_format", FORMATS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_linear_is_near_its_original(weight_format: WeightFormat, has_bias: bool) -> None:
    linear = nn.Linear(64, 32, bias=has_bias)
    with torch.no_grad():
        linear.weight.copy_(rows(2, 32, 64))
    x = rows(3, 2, 5, 64)
    ours = ScaledLinear(linear, weight_format, CPU)(x)
    theirs = linear(x).detach()
    assert ours.shape == theirs.shape
    assert (ours - theirs).norm() / theirs.norm() < (0.015 if weight_format == "int8" else 0.05)


def test_what_a_linear_computes_is_exact_beyond_the_rounding() -> None:
    linear = nn.Linear(64, 32, bias=False)
    x = rows(4, 7, 64)
    scaled = ScaledLinear(linear, "int8", CPU)
    values, scales = quantise_rows(x, "int8")
    sums = values.long() @ scaled.weight.long().t()
    assert torch.equal(scaled(x), sums.float() * scales * scaled.weight_scales)


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_row_does_not_depend_on_its_neighbours(weight_format: WeightFormat) -> None:
    scaled = ScaledLinear(nn.Linear(64, 32), weight_format, CPU)
    x = rows(5, 40, 64)
    alone = torch.cat([scaled(row[None]) for row in x])
    exactly = weight_format == "int8"
    assert torch.equal(scaled(x), alone) if exactly else torch.allclose(scaled(x), alone, atol=1e-5)


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_model_keeps_its_output_projection_and_its_answers_nearly(weight_format: WeightFormat) -> None:
    model = tiny_llama(1, spread=1.0, hidden_size=64, intermediate_size=96, max_position_embeddings=64)
    tokens = list(range(20))
    plain = model(torch.tensor([tokens])).logits[0]
    head = model.lm_head
    assert quantise_linears(model, weight_format, CPU) == 2 * 7
    assert model.lm_head is head
    decoder = TransformersDecoder(model, deterministic=False, max_context_tokens=64)
    decoder.allocate(4)
    logits = decoder.forward(StepInput(tokens, range(20), [SequenceSlice(0, 20, 0, [1, 2])], range(20)))
    assert (logits - plain).norm() / plain.norm() < 0.1
    assert not torch.equal(logits, plain)


def test_linears_of_odd_sizes_stay() -> None:
    model = nn.Sequential(nn.Linear(20, 32), nn.Linear(32, 16))
    assert quantise_linears(model, "int8", CPU) == 1
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize(
    ("split_k_and_library_s", "max_rows"),
    [
        ([1.0, 1.0], 0),
        ([2.0, 1.0], 0),
        ([1.0, 2.0, 3.0, 3.0], 16),
        ([1.0, 2.0, 3.0, 4.0, 9.0, 5.0], 64),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 128),
    ],
)
def test_few_rows_take_the_faster_product(split_k_and_library_s: list[float], max_rows: int) -> None:
    linears = [ScaledLinear(nn.Linear(64, 32), "int8", CPU) for _ in range(2)]
    times_s = iter(split_k_and_library_s)
    choose_product(linears, lambda _: next(times_s))
    assert [linear.max_split_k_rows for linear in linears] == [max_rows] * 2
    assert next(times_s, None) is None
