"""Features survive their journey: exactly as bfloat16, closely as fp8, and nonsense is refused."""

import msgspec
import pytest
import torch

from pilotfish.features import FeatureFormat, Features
from pilotfish.models.feature_codec import decode_features, encode_features

WIDTH, LAYERS = 48, 3


@pytest.fixture
def values() -> torch.Tensor:
    torch.manual_seed(5)
    # Layers of very different size, as in a model.
    sizes = torch.tensor([0.01, 1.0, 400.0]).repeat_interleave(WIDTH // LAYERS)
    return (torch.randn(7, WIDTH) * sizes).bfloat16()


def test_bfloat16_comes_back_bit_for_bit(values: torch.Tensor) -> None:
    features = encode_features(values, 11, FeatureFormat.BF16, num_layers=LAYERS)
    assert (features.first_position, features.end_position) == (11, 18)
    assert len(features.data) == 7 * WIDTH * 2
    assert torch.equal(decode_features(features, width=WIDTH, num_layers=LAYERS), values)


def test_fp8_has_a_scale_for_each_layer_of_a_token(values: torch.Tensor) -> None:
    values[3] = 0
    features = encode_features(values, 0, FeatureFormat.FP8, num_layers=LAYERS)
    assert len(features.data) == 7 * (WIDTH + 4 * LAYERS)
    decoded = decode_features(features, width=WIDTH, num_layers=LAYERS)
    largest = values.float().view(7, LAYERS, -1).abs().amax(-1, keepdim=True)
    error = (decoded - values.float()).view(7, LAYERS, -1).abs()
    # e4m3 has three bits after the leading one: half a step of the largest binade.
    assert bool((error <= largest / 16).all())
    assert torch.equal(decoded[3], torch.zeros(WIDTH))


@pytest.mark.parametrize("kind", list(FeatureFormat))
def test_rows_can_be_cut_off_undecoded(values: torch.Tensor, kind: FeatureFormat) -> None:
    features = encode_features(values, 20, kind, num_layers=LAYERS)
    rest = features.since(24)
    assert (rest.first_position, rest.num_tokens) == (24, 3)
    assert torch.equal(
        decode_features(rest, width=WIDTH, num_layers=LAYERS),
        decode_features(features, width=WIDTH, num_layers=LAYERS)[4:],
    )
    assert features.since(3) is features
    assert features.since(99).num_tokens == 0


@pytest.mark.parametrize("kind", list(FeatureFormat))
def test_another_width_is_refused(values: torch.Tensor, kind: FeatureFormat) -> None:
    features = encode_features(values, 0, kind, num_layers=LAYERS)
    with pytest.raises(ValueError, match="bytes for 7 tokens"):
        decode_features(features, width=WIDTH + 3, num_layers=LAYERS)
    cut = msgspec.structs.replace(features, data=features.data[:-1])
    with pytest.raises(ValueError, match="bytes for 7 tokens"):
        decode_features(cut, width=WIDTH, num_layers=LAYERS)


@pytest.mark.parametrize("kind", list(FeatureFormat))
def test_values_that_are_no_numbers_are_refused(kind: FeatureFormat) -> None:
    row_bytes = WIDTH * 2 if kind is FeatureFormat.BF16 else WIDTH + 4 * LAYERS
    garbage = Features(0, 2, kind, b"\xff" * (2 * row_bytes))  # NaN in every format
    with pytest.raises(ValueError, match="finite"):
        decode_features(garbage, width=WIDTH, num_layers=LAYERS)
