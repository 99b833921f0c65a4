"""Faults planted into the head that comes with Pilotfish, each named by the experiment that undoes it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from pilotfish.bench.prompts import load_prompts
from pilotfish.chat import ChatMessage
from pilotfish.config import default_cache_dir
from pilotfish.config.shipped_heads import head_folder, shipped_head
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.examine.faults.head_experiments import AS_SERVED, ComputedText, find_fault, read_texts, share_right
from pilotfish.models.loading import load_model
from pilotfish.models.store.catalogue import DEFAULT_MODEL
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.tokens.tokenizer import Tokenizer

NUM_PROMPTS, NUM_TOKENS = 5, 32


@pytest.fixture(scope="module")
def target() -> PreTrainedModel:
    cache = ModelCache(Path(default_cache_dir()))
    if not cache.is_complete(DEFAULT_MODEL.name):
        pytest.skip(f"{DEFAULT_MODEL.name} is not in {cache.root}")
    return load_model(DEFAULT_MODEL.name, cache_dir=cache.root, dtype=torch.float32).model


@pytest.fixture(scope="module")
def texts(target: PreTrainedModel) -> list[ComputedText]:
    tokenizer = Tokenizer.load(ModelCache(Path(default_cache_dir())).folder(DEFAULT_MODEL.name))
    read = []
    for prompt in load_prompts()[:NUM_PROMPTS]:
        asked = tokenizer.apply_chat_template((ChatMessage("user", prompt.text),))
        answer = target.generate(torch.tensor([asked]), max_new_tokens=NUM_TOKENS, do_sample=False, pad_token_id=2)
        read.append((answer[0].tolist(), len(asked)))
    return read_texts(target, read)


@pytest.fixture
def head(target: PreTrainedModel) -> Eagle3Head:
    folder = head_folder(shipped_head(DEFAULT_MODEL.name, "eagle3"))
    return load_eagle3(folder, num_target_layers=target.config.num_hidden_layers, dtype=torch.float32)


def test_a_sound_head_has_no_fault(head: Eagle3Head, target: PreTrainedModel, texts: list[ComputedText]) -> None:
    assert share_right(head, target.get_input_embeddings(), texts, AS_SERVED) > 0.5
    assert find_fault(head, target, texts) is None


def _with_config(head: Eagle3Head, **changes: object) -> None:
    head.config = replace(head.config, **changes)  # type: ignore[arg-type]


def _layers_reversed(head: Eagle3Head) -> None:
    _with_config(head, feature_layers=head.config.feature_layers[::-1])


def _vocabulary_shifted(head: Eagle3Head) -> None:
    head.d2t += 1


def _norm_forgotten(head: Eagle3Head) -> None:
    head.norm.weight.data.fill_(1.0)


def _rope_mismatched(head: Eagle3Head) -> None:
    _with_config(head, rope_theta=3.0)


@pytest.mark.parametrize(
    ("plant", "cause"),
    [
        (_layers_reversed, "the features are those of other layers than in training"),
        (_vocabulary_shifted, "the map of the draft vocabulary is shifted"),
        (_norm_forgotten, "a norm is missing"),
        (_rope_mismatched, "the rotary embedding's base differs from training"),
    ],
)
def test_a_planted_fault_is_named(
    head: Eagle3Head,
    target: PreTrainedModel,
    texts: list[ComputedText],
    plant: Callable[[Eagle3Head], None],
    cause: str,
) -> None:
    plant(head)
    finding = find_fault(head, target, texts)
    assert finding is not None
    assert finding.cause == cause
    assert finding.advice


@pytest.mark.parametrize("shift", [-1, 1])
def test_features_of_another_position(
    head: Eagle3Head, target: PreTrainedModel, texts: list[ComputedText], shift: int
) -> None:
    shifted = [replace(text, states=text.states.roll(shift, dims=1)) for text in texts]
    finding = find_fault(head, target, shifted)
    assert finding is not None
    assert finding.cause == "features are shifted by one position"
