"""Copies of a model's state, and what can be cut of it."""

import pytest
import torch
from transformers import CONFIG_MAPPING

from pilotfish.models.own_cache.model_state import StatefulModel, copied, cut, is_cuttable, num_bytes
from pilotfish.models.self_check.twin import LENGTH, twin_of

TEXT = list(range(1, 2 * LENGTH))


def stateful(model_type: str) -> StatefulModel:
    return StatefulModel(twin_of(CONFIG_MAPPING[model_type](num_hidden_layers=4), 1, attention=None))


@pytest.mark.parametrize(
    ("model_type", "can_be_cut"),
    [("falcon", True), ("gemma3_text", True), ("qwen3_next", False), ("mamba", False), ("rwkv", False)],
)
def test_keys_and_values_can_be_cut_and_other_states_cannot(model_type: str, can_be_cut: bool) -> None:
    model = stateful(model_type)
    _, state = model.forward(TEXT, 0, model.new_state(), 1)
    assert is_cuttable(state) is can_be_cut


@pytest.mark.parametrize("model_type", ["falcon", "gemma3_text", "qwen3_next", "mamba", "rwkv"])
def test_a_copy_is_left_alone_by_what_follows(model_type: str) -> None:
    model = stateful(model_type)
    _, state = model.forward(TEXT, 0, model.new_state(), 1)
    kept = copied(state)
    expected, _ = model.forward([*TEXT, 7], len(TEXT), state, 1)
    for _ in range(2):
        logits, _ = model.forward([*TEXT, 7], len(TEXT), copied(kept), 1)
        assert torch.equal(logits, expected)


def test_what_is_cut_frees_memory() -> None:
    model = stateful("falcon")
    _, state = model.forward(TEXT, 0, model.new_state(), 1)
    whole = num_bytes(state)
    cut(state, len(TEXT) - 1)
    assert whole == len(TEXT) * num_bytes(state) > 0
    cut(state, 0)
    assert num_bytes(state) * len(TEXT) == whole
