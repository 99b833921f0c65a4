"""Hidden states of both decoders, against transformers' own."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.errors import ConfigError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.native.decoder import NativeDecoder
from tests.support.tiny_models import tiny_model

TOKENS = torch.randint(0, 96, (60,), generator=torch.Generator().manual_seed(3)).tolist()
BLOCKS = [5, 2, 9, 1]
LAYERS = (3, 1, 4)


def tiny(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    return tiny_model(kind, dtype, num_hidden_layers=4)


@pytest.fixture(scope="module", params=["llama", "gemma3", "gpt2", "native"])
def pair(request: pytest.FixtureRequest, kernel_cache: Path) -> tuple[PreTrainedModel, Decoder]:
    """A float32 model and a decoder of it that captures LAYERS."""
    if request.param == "native":
        model = tiny("llama", torch.bfloat16)
        decoder: Decoder = NativeDecoder(
            copy.deepcopy(model), max_context_tokens=256, num_threads=2, cache_dir=kernel_cache
        )
        model = model.float()
    else:
        model = tiny(request.param, torch.float32)
        decoder = TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=256)
    decoder.allocate(16)
    decoder.capture(LAYERS)
    return model, decoder


def run(decoder: Decoder, cuts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, features and last_hidden of TOKENS; only every second row of a step is a logit row."""
    results: list[tuple[Tensor, Tensor, Tensor]] = []
    start = 0
    for size in cuts:
        piece = SequenceSlice(0, size, start, BLOCKS)
        rows = range(start % 2, size, 2)
        step = StepInput(TOKENS[start : start + size], range(start, start + size), [piece], rows)
        logits = decoder.forward(step)
        results.append((logits.float().clone(), decoder.features.float(), decoder.last_hidden.float()))
        assert decoder.features.dtype is decoder.last_hidden.dtype is decoder.dtype
        start += size
    logits, features, last_hidden = (torch.cat(parts) for parts in zip(*results, strict=True))
    return logits, features, last_hidden


def own(model: PreTrainedModel) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, features and last_hidden, by transformers itself."""
    output = model(torch.tensor([TOKENS]), output_hidden_states=True, use_cache=False)
    states = output.hidden_states  # the last one has the final norm applied
    return output.logits[0], torch.cat([states[index][0] for index in LAYERS], dim=-1), states[-1][0]


def assert_close(ours: Tensor, theirs: Tensor, decoder: Decoder) -> None:
    tolerance = 1e-3 if decoder.dtype is torch.float32 else 0.03
    assert ours.shape == theirs.shape
    assert (ours - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.parametrize("cuts", [[60], [1, 38, 5, 16]])
def test_hidden_states_equal_transformers_own(pair: tuple[PreTrainedModel, Decoder], cuts: list[int]) -> None:
    model, decoder = pair
    logits, features, last_hidden = run(decoder, cuts)
    own_logits, own_features, own_last = own(model)
    assert_close(logits, own_logits[::2], decoder)
    assert_close(features, own_features, decoder)
    assert_close(last_hidden, own_last[::2], decoder)


@pytest.mark.parametrize("layer", [-1, 5])
def test_layers_that_are_not_there_are_refused(pair: tuple[PreTrainedModel, Decoder], layer: int) -> None:
    with pytest.raises(ValueError, match=f"layer {layer} cannot be captured.*0 to 3"):
        pair[1].capture((0, layer))


def test_a_step_without_logit_rows_has_features(pair: tuple[PreTrainedModel, Decoder]) -> None:
    _, decoder = pair
    whole = run(decoder, [60])[1]
    decoder.forward(StepInput(TOKENS, range(60), [SequenceSlice(0, 60, 0, BLOCKS)], []))
    assert torch.equal(decoder.features.float(), whole)
    assert decoder.last_hidden.shape == (0, 64)


def test_who_captures_besides_another_must_want_the_same(pair: tuple[PreTrainedModel, Decoder]) -> None:
    _, decoder = pair
    before = run(decoder, [60])
    decoder.capture(LAYERS)
    with pytest.raises(ConfigError, match=r"layers \[3, 1, 4\] and of layers \[0, 1, 2\]"):
        decoder.capture((0, 1, 2))
    for ours, theirs in zip(run(decoder, [60]), before, strict=True):
        assert torch.equal(ours, theirs)
