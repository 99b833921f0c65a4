"""Heads are written as published ones are, and what does not fit is refused by name."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pilotfish.drafters.eagle3.checkpoint import load_eagle3, save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from pilotfish.models.store.head_config import HeadTarget
from tests.support.tiny_models import tiny_eagle3_config

NUM_LAYERS = 8
PUBLISHED_SHAPES = {
    "d2t": [5],
    "t2d": [11],
    "fc.weight": [8, 24],
    "lm_head.weight": [5, 8],
    "midlayer.hidden_norm.weight": [8],
    "midlayer.input_layernorm.weight": [8],
    "midlayer.mlp.down_proj.weight": [8, 12],
    "midlayer.mlp.gate_proj.weight": [12, 8],
    "midlayer.mlp.up_proj.weight": [12, 8],
    "midlayer.post_attention_layernorm.weight": [8],
    "midlayer.self_attn.k_proj.weight": [4, 16],
    "midlayer.self_attn.o_proj.weight": [8, 8],
    "midlayer.self_attn.q_proj.weight": [8, 16],
    "midlayer.self_attn.v_proj.weight": [4, 16],
    "norm.weight": [8],
}


@pytest.fixture
def head() -> Eagle3Head:
    torch.manual_seed(0)
    head = Eagle3Head(
        tiny_eagle3_config(
            hidden_size=8,
            intermediate_size=12,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=4,
            vocab_size=11,
            draft_vocab_size=5,
            feature_layers=(2, 4, 5),
            target_model="tiny",
            tokenizer_fingerprint="abc",
        )
    )
    head.set_draft_vocabulary(torch.tensor([0, 2, 3, 7, 10]))
    return head


def load(folder: Path) -> Eagle3Head:
    return load_eagle3(folder, num_target_layers=NUM_LAYERS, dtype=torch.float32)


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in changes.items():
        name = name.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")


def reconfigure(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_layout_is_the_published_one(head: Eagle3Head, tmp_path: Path) -> None:
    save_eagle3(head, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == PUBLISHED_SHAPES
    assert tensors["d2t"].dtype == torch.int64
    assert tensors["t2d"].dtype == torch.bool
    assert tensors["fc.weight"].dtype == torch.bfloat16
    assert (torch.arange(5) + tensors["d2t"]).tolist() == tensors["t2d"].nonzero().squeeze(1).tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_round_trip_keeps_everything(head: Eagle3Head, tmp_path: Path) -> None:
    save_eagle3(head, tmp_path, dtype=torch.float32)
    again = load(tmp_path)
    assert again.config == head.config
    for name, tensor in head.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert again.target_token_ids.tolist() == [0, 2, 3, 7, 10]


def test_reads_heads_from_elsewhere(head: Eagle3Head, tmp_path: Path) -> None:
    """Other writers: `layers.0.` for `midlayer.`, own embeddings, no feature layers, no target."""
    save_eagle3(head, tmp_path, dtype=torch.float32)
    tensors = {
        name.replace("midlayer.", "layers.0."): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    embeddings = torch.randn(11, 8)
    save_file({**tensors, "embed_tokens.weight": embeddings}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("eagle_aux_hidden_state_layer_ids", "target_model", "target_tokenizer_fingerprint", "head_dim"):
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = load(tmp_path)
    assert again.config.feature_layers == (2, 4, 5)
    assert again.embed_tokens is not None
    assert torch.equal(again.embed_tokens.weight, embeddings)
    assert torch.equal(again.midlayer.mlp.up_proj.weight, head.midlayer.mlp.up_proj.weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc__weight": None}, r"lacks 1 tensors: fc\.weight"),
        ({"fc__weight": torch.zeros(8, 16)}, r"fc\.weight has the shape \[8, 16\].*\[8, 24\]"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7])}, "outside the target's vocabulary"),
        ({"d2t": torch.tensor([0, 1, 0, 4, 6])}, "two draft tokens to one"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 5])}, "name different tokens"),
        ({"d2t": torch.zeros(5)}, "d2t must be int64"),
        ({"t2d": torch.zeros(11)}, "t2d must be bool"),
        ({"lora": torch.zeros(1)}, "no known use: lora"),
    ],
)
def test_broken_heads_are_refused(
    head: Eagle3Head, tmp_path: Path, changes: dict[str, torch.Tensor | None], message: str
) -> None:
    save_eagle3(head, tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_vocab_size": None}, "no draft_vocab_size"),
        ({"draft_vocab_size": 12}, "does not fit"),
        ({"num_hidden_layers": 2}, "2 layers"),
        ({"hidden_size": "8"}, "hidden_size"),
        ({"num_key_value_heads": 3}, "cannot share"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}, "features of layers"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 4]}, "features of layers"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type"),
    ],
)
def test_wrong_configurations_are_refused(
    head: Eagle3Head, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    save_eagle3(head, tmp_path)
    reconfigure(tmp_path, **changes)
    with pytest.raises(UnsupportedModelError, match=message):
        load(tmp_path)


def test_missing_and_torn_files_are_named(head: Eagle3Head, tmp_path: Path) -> None:
    save_eagle3(head, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        load(tmp_path)
    weights.unlink()
    with pytest.raises(ModelNotFoundError, match=r"no \*\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"hidden_size": 16, "vocab_size": 11, "fingerprint": "abc"}, "hidden size is 8, the target's 16"),
        ({"hidden_size": 8, "vocab_size": 12, "fingerprint": "abc"}, "vocabulary has 11 tokens, the target's 12"),
        ({"hidden_size": 8, "vocab_size": 11, "fingerprint": "xyz"}, "another tokenizer"),
    ],
)
def test_heads_of_other_targets_are_refused(head: Eagle3Head, target: dict[str, object], message: str) -> None:
    fitting = HeadTarget(hidden_size=8, num_layers=8, vocab_size=11, fingerprint="abc")
    head.config.check_target(fitting, source="head")
    with pytest.raises(ModelError, match=message):
        head.config.check_target(dataclasses.replace(fitting, **target), source="head")  # type: ignore[arg-type]
