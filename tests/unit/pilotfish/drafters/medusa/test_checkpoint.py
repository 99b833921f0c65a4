"""Medusa heads: the published layout, their mathematics, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pilotfish.drafters.medusa.checkpoint import load_medusa, save_medusa
from pilotfish.drafters.medusa.config import MedusaConfig
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.errors import ModelError

SIZES = {"hidden_size": 6, "vocab_size": 9}


@pytest.fixture
def heads() -> MedusaHeads:
    torch.manual_seed(0)
    config = MedusaConfig(
        hidden_size=6, vocab_size=9, num_heads=2, draft_vocab_size=4, target_model="tiny", tokenizer_fingerprint="abc"
    )
    heads = MedusaHeads(config).requires_grad_(False)
    heads.token_map.copy_(torch.tensor([1, 2, 5, 8]))
    for parameter in heads.parameters():
        parameter.normal_()
    return heads


def test_layout_and_round_trip(heads: MedusaHeads, tmp_path: Path) -> None:
    save_medusa(heads, tmp_path, dtype=torch.float32)
    shapes = {name: list(tensor.shape) for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    assert shapes == {
        "token_map": [4],
        **{f"medusa_head.{k}.0.linear.weight": [6, 6] for k in range(2)},
        **{f"medusa_head.{k}.0.linear.bias": [6] for k in range(2)},
        **{f"medusa_head.{k}.1.weight": [4, 6] for k in range(2)},
    }
    again = load_medusa(tmp_path, **SIZES, dtype=torch.float32)
    assert again.config == heads.config
    for name, tensor in heads.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_authors_layout_is_read(tmp_path: Path, num_layers: int) -> None:
    """Names that begin with the head's number, in a pickled file of tensors, and no sizes in config.json."""
    torch.manual_seed(1)
    tensors = {}
    for k in range(2):
        for layer in range(num_layers):
            tensors[f"{k}.{layer}.linear.weight"] = torch.randn(6, 6)
            tensors[f"{k}.{layer}.linear.bias"] = torch.randn(6)
        tensors[f"{k}.{num_layers}.weight"] = torch.randn(9, 6)
    torch.save(tensors, tmp_path / "medusa_lm_head.pt")
    values = {"medusa_num_heads": 2, "medusa_num_layers": num_layers, "base_model_name_or_path": "tiny", "version": "2"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    heads = load_medusa(tmp_path, **SIZES, dtype=torch.float32)
    assert heads.config.draft_vocab_size == 9
    assert torch.equal(heads.medusa_head[1][num_layers].weight, tensors[f"1.{num_layers}.weight"])


@pytest.mark.parametrize("has_bias", [False, True])
def test_vllms_layout_is_read(heads: MedusaHeads, tmp_path: Path, has_bias: bool) -> None:
    """Blocks and projections apart, perhaps without biases, and projections of the whole vocabulary to be cut."""
    tensors = {"token_map": heads.token_map}
    for k, (block, projection) in enumerate(heads.medusa_head):
        whole = torch.full((9, 6), torch.nan)
        whole[heads.token_map] = projection.weight
        tensors |= {f"blocks.{k}.layers.0.weight": block.linear.weight, f"lm_heads.{k}.weight": whole}
        if has_bias:
            tensors[f"blocks.{k}.layers.0.bias"] = block.linear.bias
        else:
            block.linear.bias.zero_()
    save_file(tensors, tmp_path / "model.safetensors")
    values = {"num_heads": 2, "num_hidden_layers": 1, "hidden_size": 6, "vocab_size": 9, "truncated_vocab_size": 4}
    (tmp_path / "config.json").write_text(json.dumps(values))
    again = load_medusa(tmp_path, **SIZES, dtype=torch.float32)
    for name, tensor in heads.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("content", [b"", b"no file of torch", b"\x80\x02c__builtin__\neval\n."])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "medusa_lm_head.pt").write_bytes(content)
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2}')
    with pytest.raises(ModelError, match="cannot be read"):
        load_medusa(tmp_path, **SIZES)


def test_a_head_is_a_residual_block_and_a_projection(heads: MedusaHeads) -> None:
    x = torch.randn(3, 6)
    linear, projection = heads.medusa_head[1][0].linear, heads.medusa_head[1][1].weight
    inner = x @ linear.weight.T + linear.bias
    torch.testing.assert_close(heads.logits(1, x), (x + inner * inner.sigmoid()) @ projection.T)


def test_a_new_head_passes_its_input_on() -> None:
    heads = MedusaHeads(MedusaConfig(hidden_size=6, vocab_size=9, num_heads=1, draft_vocab_size=9))
    x = torch.randn(2, 6)
    torch.testing.assert_close(heads.logits(0, x), x @ heads.medusa_head[0][1].weight.T)


@pytest.mark.parametrize(
    ("tensors", "values", "message"),
    [
        ({"medusa_head.1.1.weight": None}, {}, "lacks 1 tensors: medusa_head.1.1.weight"),
        ({"medusa_head.1.1.weight": torch.zeros(4, 5)}, {}, "the shape"),
        ({"token_map": torch.tensor([1, 2, 5, 9])}, {}, "token_map leads outside"),
        ({"token_map": torch.tensor([1, 2, 5, 5])}, {}, "token_map maps two"),
        ({}, {"medusa_num_layers": 2}, "lacks 6 tensors"),
        ({}, {"medusa_num_layers": 0}, "medusa_num_layers"),
        ({}, {"medusa_num_heads": None}, "no Medusa heads"),
        ({}, {"medusa_num_heads": 3}, "lacks 3 tensors"),
        ({}, {"truncated_vocab_size": 10}, "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(
    heads: MedusaHeads, tmp_path: Path, tensors: dict[str, torch.Tensor | None], values: dict[str, object], message: str
) -> None:
    save_medusa(heads, tmp_path)
    found = load_file(tmp_path / "model.safetensors") | tensors
    save_file({name: t for name, t in found.items() if t is not None}, tmp_path / "model.safetensors")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **values}))
    with pytest.raises(ModelError, match=message):
        load_medusa(tmp_path, **SIZES)
