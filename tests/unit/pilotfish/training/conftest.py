"""A tiny target: in memory, with samples of what it computes, and as a folder that chats in letters and spaces."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.training.data.samples import Sample
from tests.support.tiny_llama import tiny_llama

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END = 1
"""Token id of <|im_end|>."""


class KilledError(Exception):
    """Ends a run where a test wants it to."""


@pytest.fixture
def tiny_target() -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6, "vocab_size": 30}
    return tiny_llama(2, spread=15, **sizes, tie_word_embeddings=True)


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
            output.hidden_states[-1][0][prompt_len - 1 :],
            logits.argmax(-1).masked_fill(in_prompt, -1),
            logits.logsumexp(-1).masked_fill(in_prompt, 0),
        )

    return compute


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama that says letters, spaces and <|im_end|> only; its sizes keep the native kernels away."""
    folder = tmp_path_factory.mktemp("targets") / "tiny"
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=4,
        num_attention_heads=3,
        num_key_value_heads=1,
        vocab_size=258,
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=END,
        pad_token_id=END,
    )
    model = LlamaForCausalLM(config).requires_grad_(False)
    vocab = _write_tokenizer(folder)
    _only_say(model, {**{vocab[char]: 0.0 for char in "abcdefghijkl"}, vocab["Ġ"]: 0.3, END: -0.05})
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def _write_tokenizer(folder: Path) -> dict[str, int]:
    folder.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: token_id for token_id, token in enumerate(["<|im_start|>", "<|im_end|>", *alphabet])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return vocab


def _only_say(model: LlamaForCausalLM, weights: dict[int, float]) -> None:
    """Dimension 0 is constant and large in every hidden state: an output row's weight on it says how often it comes."""
    model.model.embed_tokens.weight[:, 0] = 3.0
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[0] = 0
        layer.mlp.down_proj.weight[0] = 0
        layer.self_attn.o_proj.weight.mul_(0.3)
        layer.mlp.down_proj.weight.mul_(0.3)
    model.lm_head.weight.mul_(0.3)
    model.lm_head.weight[:, 0] = -40.0
    for token_id, weight in weights.items():
        model.lm_head.weight[token_id, 0] = weight
