"""A tiny random Llama and an engine core over it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import Event
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.types import ModelInfo
from tests.support.tiny_llama import tiny_llama as make_tiny_llama

VOCAB = 64
CONTEXT = 128


@pytest.fixture(scope="session")
def tiny_llama() -> LlamaForCausalLM:
    torch.set_num_threads(1)
    return make_tiny_llama(vocab_size=VOCAB, max_position_embeddings=CONTEXT)


@pytest.fixture(scope="session")
def greedy_text(tiny_llama: LlamaForCausalLM) -> Callable[[Sequence[int], int], list[int]]:
    """transformers' own greedy continuation, one forward over the whole text a token."""

    def decode(prompt: Sequence[int], num_tokens: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(num_tokens):
            tokens.append(int(tiny_llama(torch.tensor([tokens])).logits[0, -1].argmax()))
        return tokens[len(prompt) :]

    return decode


@pytest.fixture
def make_core(tiny_llama: LlamaForCausalLM) -> Callable[..., EngineCore]:
    def make(**changes: int | bool) -> EngineCore:
        settings = {"kv_cache_tokens": 1024, "max_batch_tokens": 48, "dtype": "float32", "max_draft_tokens": 8}
        decoder = TransformersDecoder(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=CONTEXT)
        info = ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=VOCAB, max_context_tokens=CONTEXT)
        return EngineCore(decoder, EngineConfig(**{**settings, **changes}), info)

    return make


@pytest.fixture
def settle() -> Callable[[EngineCore], list[Event]]:
    """Step until nothing is left to do; returns all events."""

    def run(core: EngineCore) -> list[Event]:
        events: list[Event] = []
        for _ in range(2000):
            if not core.has_work:
                return events
            events.extend(core.step())
        raise AssertionError("the engine does not come to rest")

    return run
