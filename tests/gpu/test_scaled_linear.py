"""8-bit products on a GPU: int8 is exact, fp8 is what its definition says up to float32's order of summing."""

import pytest
import torch
from torch import nn

from pilotfish.errors import ConfigError
from pilotfish.models.device import require_fp8
from pilotfish.models.scaled_linear import ScaledLinear, quantise_rows

NUM_ROWS = [1, 4, 16, 17, 200]


@pytest.fixture
def linear() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(512, 1024, bias=True).to(torch.bfloat16)


@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_int8_is_exact(device: torch.device, linear: nn.Linear, num_rows: int) -> None:
    x = torch.randn(num_rows, 512, generator=torch.Generator().manual_seed(num_rows)).to(torch.bfloat16)
    ours = ScaledLinear(linear, "int8", device)
    values, scales = quantise_rows(x.to(device), "int8")
    sums = values.cpu().long() @ ours.weight.cpu().long().t()
    expected = (sums.float() * scales.cpu() * ours.weight_scales.cpu()).to(torch.bfloat16) + linear.bias.detach()
    assert torch.equal(ours(x.to(device)).cpu(), expected)


@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_fp8_is_its_definition(device: torch.device, linear: nn.Linear, num_rows: int) -> None:
    try:
        require_fp8(device)
    except ConfigError as error:
        pytest.skip(str(error))
    x = torch.randn(num_rows, 512, generator=torch.Generator().manual_seed(num_rows)).to(torch.bfloat16)
    ours = ScaledLinear(linear, "fp8", device)(x.to(device)).cpu().float()
    defined = ScaledLinear(linear, "fp8", torch.device("cpu"))(x).float()
    assert (ours - defined).norm() / defined.norm() < 0.005  # bfloat16's rounding of the sums
    plain = linear(x).detach().float()
    assert (ours - plain).norm() / plain.norm() < 0.05


def test_int8_rows_do_not_depend_on_their_neighbours(device: torch.device, linear: nn.Linear) -> None:
    ours = ScaledLinear(linear, "int8", device)
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(9)).to(device, torch.bfloat16)
    assert torch.equal(ours(x), torch.cat([ours(row[None]) for row in x]))
