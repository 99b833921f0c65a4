"""The split-K product: exact in int8, float32 sums in fp8, and the same linear either way."""

import pytest
import torch
from torch import Tensor, nn

from pilotfish.models.scaled_linear import ScaledLinear, WeightFormat, quantise_rows
from tests.support.triton_interpreter import needs_interpreter

pytestmark = needs_interpreter
FORMATS: list[WeightFormat] = ["int8", "fp8"]


def values(seed: int, weight_format: WeightFormat, *shape: int) -> Tensor:
    return quantise_rows(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), weight_format)[0]


@pytest.mark.parametrize("weight_format", FORMATS)
@pytest.mark.parametrize(
    ("num_rows", "num_inputs", "num_outputs"),
    [(1, 48, 16), (3, 512, 1024), (16, 1152, 80), (17, 1152, 200), (64, 2048, 128), (100, 1152, 80)],
)
def test_shares_add_up_to_the_product(
    weight_format: WeightFormat, num_rows: int, num_inputs: int, num_outputs: int
) -> None:
    from pilotfish.models.split_k import split_k

    rows = values(1, weight_format, num_rows, num_inputs)
    weight = values(2, weight_format, num_outputs, num_inputs)
    shares = split_k(rows, weight)
    expected = rows.double() @ weight.double().t()
    error = (shares.double().sum(0) - expected).abs().max()
    assert error <= (0 if weight_format == "int8" else 1e-6 * expected.abs().max())


def test_the_operation_keeps_to_what_it_tells_torch() -> None:
    from pilotfish.models.split_k import split_k

    torch.library.opcheck(split_k, (values(1, "int8", 3, 1152), values(2, "int8", 80, 1152)))


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_linear_is_the_same_with_either_product(weight_format: WeightFormat) -> None:
    import pilotfish.models.split_k  # noqa: F401

    torch.manual_seed(3)
    linear = ScaledLinear(nn.Linear(1024, 48), weight_format, torch.device("cpu"))
    x = torch.randn(2, 9, 1024)
    library = linear(x)
    linear.max_split_k_rows = 64
    tolerance = 0.0 if weight_format == "int8" else 1e-5
    assert torch.allclose(linear(x), library, rtol=tolerance, atol=tolerance)
    if weight_format == "int8":
        assert torch.equal(linear(x[:, :5]), linear(x)[:, :5]), "a row depends on its neighbours"
