"""A Llama so small that a test can compute with it, and a folder of it that services load."""

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
END_TOKEN = "<|end|>"
_SPACE = "\u0120"
PRINTABLE_VOCAB_SIZE = 96
"""The end token, a space and what else ASCII can print."""


def tiny_llama(seed: int = 3, *, spread: float = 8.0, **sizes: int | None) -> LlamaForCausalLM:
    """Random weights in float32, in eval mode; no parameter requires a gradient.

    spread: by it matrices are multiplied, so that logits lie far apart: no near ties, and texts that wander.
    sizes: of LlamaConfig, in place of SIZES. Seeds torch's own generator.
    """
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **sizes})).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(spread)
    return model


def save_printable_tokenizer(folder: Path, special: Sequence[str] = (), **config: str) -> None:
    """A tokenizer of printable ASCII characters, one token each, beside the weights of PRINTABLE_VOCAB_SIZE tokens.

    special: tokens in place of the end token. config: of tokenizer_config.json.
    """
    characters = [_SPACE, *(chr(code) for code in range(0x21, 0x7F))]
    vocabulary = {token: index for index, token in enumerate([*(special or [END_TOKEN]), *characters])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
