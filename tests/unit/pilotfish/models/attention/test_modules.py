"""Attention modules of models that name things in different ways; what they compute is in test_decoders.py."""

import weakref

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.modules import attention_shapes
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from tests.support.tiny_models import tiny_model


@pytest.mark.parametrize(
    ("kind", "num_kv_heads", "window"),
    [("llama", 2, None), ("stablelm", 2, None), ("gpt2", 4, None), ("phi3", 2, 20), ("mistral", 2, 20)],
)
def test_shapes(kind: str, num_kv_heads: int, window: int | None) -> None:
    shapes = attention_shapes(tiny_model(kind, torch.float32))
    assert [(shape.num_kv_heads, shape.head_dim, shape.sliding_window) for shape in shapes] == [
        (num_kv_heads, 16, window)
    ] * 3


def test_layers_without_keys_are_counted() -> None:
    model = MambaForCausalLM(MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=2))
    with pytest.raises(UnsupportedModelError, match="'mamba' cannot be served: 2 of its 2 layers lack attention"):
        attention_shapes(model)


@pytest.mark.parametrize("kind", ["llama", "stablelm"])
def test_a_pool_is_gone_with_the_next_one(kind: str) -> None:
    decoder = TransformersDecoder(tiny_model(kind, torch.float32), deterministic=False, max_context_tokens=256)
    pool = decoder.allocate(4)
    decoder.forward(StepInput([1, 2, 3], range(3), [SequenceSlice(0, 3, 0, [1])], [2]))
    before = weakref.ref(pool.tensors[0])
    del pool
    decoder.allocate(4)
    assert before() is None
