"""A tiny target, and samples of what it would compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.training.extract import Sample

HIDDEN, VOCAB = 16, 30


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def tiny_target() -> LlamaForCausalLM:
    torch.manual_seed(2)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=24,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCAB,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture
def computed(tiny_target: LlamaForCausalLM) -> Callable[[list[int], int], Sample]:
    """The sample of some tokens, by transformers' own forward: features are the inputs of layers 2, 3 and 3."""

    def compute(token_ids: list[int], prompt_len: int) -> Sample:
        tokens = torch.tensor(token_ids)
        output = tiny_target(tokens[None], output_hidden_states=True)
        logits = output.logits[0].float()
        in_prompt = torch.arange(len(tokens)) < prompt_len - 1
        return Sample(
            prompt_len,
            tokens,
            torch.cat([output.hidden_states[index][0] for index in (2, 3, 3)], dim=-1),
            output.hidden_states[-1][0].masked_fill(in_prompt[:, None], 0),
            logits.argmax(-1).masked_fill(in_prompt, -1),
            logits.logsumexp(-1).masked_fill(in_prompt, 0),
        )

    return compute
