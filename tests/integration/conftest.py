"""A tiny random target in bfloat16 on disk, and an EAGLE-3 head for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.models.eagle3.checkpoint import save_eagle3
from pilotfish.models.eagle3.config import Eagle3Config
from pilotfish.models.eagle3.module import Eagle3Head
from pilotfish.models.fingerprint import tokenizer_fingerprint

VOCAB, HIDDEN, NUM_LAYERS, CONTEXT = 96, 32, 6, 512


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama whose tokens are printable characters."""
    folder = tmp_path_factory.mktemp("target")
    characters = ["\u0120", *(chr(code) for code in range(0x21, 0x7F))]
    vocabulary = {token: index for index, token in enumerate(["<|end|>", *characters])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    torch.manual_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=48,
            num_hidden_layers=NUM_LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(8.0)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({}))
    return folder


@pytest.fixture(scope="session")
def head_folder(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "head"
    torch.manual_seed(5)
    head = Eagle3Head(
        Eagle3Config(
            hidden_size=HIDDEN,
            intermediate_size=48,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            vocab_size=VOCAB,
            draft_vocab_size=VOCAB - 20,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            max_position_embeddings=CONTEXT,
            feature_layers=(2, NUM_LAYERS // 2, NUM_LAYERS - 3),
            tokenizer_fingerprint=tokenizer_fingerprint(target_folder),
        )
    )
    head.set_draft_vocabulary(torch.arange(10, VOCAB - 10))
    for parameter in head.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(6.0)
    save_eagle3(head, folder)
    return folder
