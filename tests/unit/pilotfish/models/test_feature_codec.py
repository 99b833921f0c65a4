"""Features survive their journey, and nonsense is refused."""

import msgspec
import pytest
import torch

from pilotfish.features import Features
from pilotfish.models.feature_codec import decode_features, encode_features

WIDTH, LAYERS = 48, 3


@pytest.fixture
def values() -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randn(7, WIDTH).bfloat16()


def test_they_come_back_bit_for_bit(values: torch.Tensor) -> None:
    features = encode_features(values, 11)
    assert (features.first_position, features.end_position) == (11, 18)
    assert len(features.data) == 7 * WIDTH * 2
    assert torch.equal(decode_features(features, width=WIDTH, num_layers=LAYERS), values)


def test_in_int8_they_take_a_byte_each_and_a_layer_is_exact_to_a_hundredth_of_its_largest(values: torch.Tensor) -> None:
    values[:, :16] *= 100  # the lowest layer
    values[2] = 0
    features = encode_features(values, 11, num_int8_layers=LAYERS)
    assert len(features.data) == 7 * (WIDTH + 4 * LAYERS)
    decoded = decode_features(features, width=WIDTH, num_layers=LAYERS)
    errors = (decoded - values).abs().view(7, LAYERS, -1).amax(-1)
    assert (errors <= values.abs().view(7, LAYERS, -1).amax(-1) / 100).all()
    assert torch.equal(decode_features(features.since(15), width=WIDTH, num_layers=LAYERS), decoded[4:])


def test_rows_can_be_cut_off_undecoded(values: torch.Tensor) -> None:
    features = encode_features(values, 20)
    rest = features.since(24)
    assert (rest.first_position, rest.num_tokens) == (24, 3)
    whole = decode_features(features, width=WIDTH, num_layers=LAYERS)
    assert torch.equal(decode_features(rest, width=WIDTH, num_layers=LAYERS), whole[4:])
    assert features.since(3) is features
    assert features.since(99).num_tokens == 0


def test_another_width_is_refused(values: torch.Tensor) -> None:
    features = encode_features(values, 0)
    with pytest.raises(ValueError, match="bytes for 7 tokens"):
        decode_features(features, width=WIDTH + 3, num_layers=LAYERS)
    cut = msgspec.structs.replace(features, data=features.data[:-1])
    with pytest.raises(ValueError, match="bytes for 7 tokens"):
        decode_features(cut, width=WIDTH, num_layers=LAYERS)


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        decode_features(Features(0, 2, b"\xff" * (2 * WIDTH * 2)), width=WIDTH, num_layers=LAYERS)


@pytest.mark.parametrize("place", [0, 100, 7 * WIDTH - 1])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_one_value_that_is_no_number_is_enough(values: torch.Tensor, value: float, place: int) -> None:
    values.view(-1)[place] = value
    with pytest.raises(ValueError, match="finite"):
        decode_features(encode_features(values, 0), width=WIDTH, num_layers=LAYERS)
