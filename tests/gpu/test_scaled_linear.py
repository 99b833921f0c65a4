"""8-bit products on a GPU: int8 is exact, fp8 is what its definition says up to float32's order of summing."""

import pytest
import torch
from torch import nn

from pilotfish.errors import ConfigError
from pilotfish.models.device import require_fp8
from pilotfish.models.scaled_linear import ScaledLinear, WeightFormat, choose_products, quantise_linears, quantise_rows

NUM_ROWS = [1, 4, 16, 17, 100, 200]
SPLIT_K_ROWS = [0, 128]


def needs(device: torch.device, weight_format: WeightFormat) -> None:
    try:
        if weight_format == "fp8":
            require_fp8(device)
    except ConfigError as error:
        pytest.skip(str(error))


def scaled(linear: nn.Linear, weight_format: WeightFormat, device: torch.device, max_split_k_rows: int) -> ScaledLinear:
    import pilotfish.models.split_k  # noqa: F401

    result = ScaledLinear(linear, weight_format, device)
    result.max_split_k_rows = max_split_k_rows
    return result


@pytest.fixture
def linear() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(512, 1024, bias=True).to(torch.bfloat16)


@pytest.mark.parametrize("max_split_k_rows", SPLIT_K_ROWS)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_int8_is_exact(device: torch.device, linear: nn.Linear, num_rows: int, max_split_k_rows: int) -> None:
    x = torch.randn(num_rows, 512, generator=torch.Generator().manual_seed(num_rows)).to(torch.bfloat16)
    ours = scaled(linear, "int8", device, max_split_k_rows)
    values, scales = quantise_rows(x.to(device), "int8")
    sums = values.cpu().long() @ ours.weight.cpu().long().t()
    expected = (sums.float() * scales.cpu() * ours.weight_scales.cpu()).to(torch.bfloat16) + linear.bias.detach()
    assert torch.equal(ours(x.to(device)).cpu(), expected)


@pytest.mark.parametrize("max_split_k_rows", SPLIT_K_ROWS)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_fp8_is_its_definition(device: torch.device, linear: nn.Linear, num_rows: int, max_split_k_rows: int) -> None:
    needs(device, "fp8")
    x = torch.randn(num_rows, 512, generator=torch.Generator().manual_seed(num_rows)).to(torch.bfloat16)
    ours = scaled(linear, "fp8", device, max_split_k_rows)(x.to(device)).cpu().float()
    defined = ScaledLinear(linear, "fp8", torch.device("cpu"))(x).float()
    assert (ours - defined).norm() / defined.norm() < 0.005  # bfloat16's rounding of the sums
    plain = linear(x).detach().float()
    assert (ours - plain).norm() / plain.norm() < 0.05


def test_int8_rows_do_not_depend_on_their_neighbours(device: torch.device, linear: nn.Linear) -> None:
    ours = ScaledLinear(linear, "int8", device)
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(9)).to(device, torch.bfloat16)
    assert torch.equal(ours(x), torch.cat([ours(row[None]) for row in x]))


@pytest.mark.parametrize("weight_format", ["int8", "fp8"])
def test_the_products_of_a_model_are_chosen_by_time(
    device: torch.device, weight_format: WeightFormat, caplog: pytest.LogCaptureFixture
) -> None:
    needs(device, weight_format)
    model = nn.Sequential(*(nn.Linear(8192, 128, dtype=torch.bfloat16, device=device) for _ in range(8)))
    assert quantise_linears(model, weight_format, device) == 8
    choose_products(model, device)
    assert not caplog.records, "Triton could not run"
    assert model[0].max_split_k_rows >= 16, "so narrow a weight fills no GPU"
