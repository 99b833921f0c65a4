"""A tiny random target in bfloat16 on disk, and an EAGLE-3 head for it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.medusa.checkpoint import save_medusa
from pilotfish.drafters.medusa.config import MedusaConfig
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama
from tests.support.tiny_models import tiny_eagle3_config

VOCAB, CONTEXT = PRINTABLE_VOCAB_SIZE, 512


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama whose tokens are printable characters."""
    folder = tmp_path_factory.mktemp("target")
    save_printable_tokenizer(folder)
    model = tiny_llama(
        vocab_size=VOCAB,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=None,
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def head_folder(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "head"
    torch.manual_seed(5)
    head = Eagle3Head(
        tiny_eagle3_config(
            vocab_size=VOCAB,
            draft_vocab_size=VOCAB - 20,
            max_position_embeddings=CONTEXT,
            feature_layers=(0, 1, 1),
            tokenizer_fingerprint=tokenizer_fingerprint(target_folder),
        )
    )
    head.set_draft_vocabulary(torch.arange(10, VOCAB - 10))
    for parameter in head.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(6.0)
    save_eagle3(head, folder)
    return folder


@pytest.fixture(scope="session")
def medusa_folder(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "medusa"
    torch.manual_seed(5)
    heads = MedusaHeads(
        MedusaConfig(
            hidden_size=32,
            vocab_size=VOCAB,
            num_heads=4,
            draft_vocab_size=VOCAB - 20,
            tokenizer_fingerprint=tokenizer_fingerprint(target_folder),
        )
    )
    heads.token_map.copy_(torch.arange(10, VOCAB - 10))
    for parameter in heads.parameters():
        parameter.data.normal_(std=0.5)
    save_medusa(heads, folder)
    return folder


@pytest.fixture(scope="session")
def other_folder(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target, with its tokens in another order: what it drafts is always right, if it is understood."""
    folder = tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(target_folder, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    last = len(vocabulary) - 1
    tokenizer["model"]["vocab"] = {token: last - token_id for token, token_id in vocabulary.items()}
    for token in tokenizer["added_tokens"]:
        token["id"] = last - token["id"]
    path.write_text(json.dumps(tokenizer))
    weights = load_file(folder / "model.safetensors")
    order = torch.arange(last, -1, -1)
    for name, weight in weights.items():
        if weight.shape[0] == len(vocabulary):
            weights[name] = weight[order].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
