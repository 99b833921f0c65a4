"""A model in parts computes what the whole one does, through everything that an engine asks of a decoder."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.parallel.shape import ModelShape
from pilotfish.parallel.sharded_model import load_shard, whole_embedding
from pilotfish.speculation.trees.tree import DraftTree

SavedModel = Callable[[str], tuple[PreTrainedModel, Path]]
BLOCKS = [5, 2, 9, 7]
SIZES = [("llama", 2), ("llama", 4), ("smollm2", 3), ("qwen2", 2), ("qwen3", 4), ("gemma3", 2)]
NOT_PLANNED = [("apertus", 2)]


def step(tokens: list[int], start: int, *, tree: DraftTree | None = None) -> StepInput:
    part = SequenceSlice(0, len(tokens), start, BLOCKS, tree)
    return StepInput(tokens, part.positions(), [part], range(len(tokens)))


def conversation(decoder: Any) -> dict[str, Tensor]:
    """Logits of prefill in two pieces, decode, a verification that is rolled back, a tree, and what follows it."""
    decoder.allocate(12)
    text = [(7 * index + 3) % 90 for index in range(40)]
    logits = {
        "prefill": decoder.forward(step(text[:17], 0)),
        "chunk": decoder.forward(step(text[17:], 17)),
        "decode": decoder.forward(step([11], 40)),
        "verify": decoder.forward(step([12, 50, 51, 52], 41)),
        "rolled back": decoder.forward(step([60, 61], 42)),
        "tree": decoder.forward(step([62, 70, 71, 72, 73], 44, tree=DraftTree((-1, -1, 1, 1)))),
    }
    # The path 71, 73: nodes 1 and 3 lie in slots 46 and 48, and belong into 45 and 46.
    slot = [BLOCKS[place // 16] * 16 + place % 16 for place in range(50)]
    decoder.move_kv([(slot[46], slot[45]), (slot[48], slot[46])])
    logits["after the tree"] = decoder.forward(step([63], 47))
    return {name: value.float().clone() for name, value in logits.items()}


@pytest.mark.parametrize(("kind", "num_ranks"), [("llama", 4), ("smollm2", 3), ("gemma3", 2)])
def test_a_rank_has_the_whole_embedding_without_the_others(
    saved_model: SavedModel, in_ranks: Callable[..., Any], kind: str, num_ranks: int
) -> None:
    """Cut and padded, tied to the output projection, and scaled, which is not cut."""
    model, folder = saved_model(kind)
    token_ids = torch.arange(model.config.vocab_size)
    embedding = whole_embedding(folder, in_ranks(folder, num_ranks).ranks[-1].model)
    assert torch.equal(embedding(token_ids), model.get_input_embeddings()(token_ids))


@pytest.mark.parametrize(("kind", "num_ranks"), SIZES + NOT_PLANNED)
def test_ranks_together_equal_one_process(
    saved_model: SavedModel, in_ranks: Callable[..., Any], kind: str, num_ranks: int
) -> None:
    model, folder = saved_model(kind)
    if (kind, num_ranks) in SIZES:
        ModelShape.of_config(model.config.to_dict())  # `plan --model` knows it, to which operators are sent
    whole = conversation(TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=256))
    parts = conversation(in_ranks(folder, num_ranks))
    assert whole["tree"].std() > 0.1
    for name, expected in whole.items():
        assert parts[name].shape == expected.shape, name
        assert (parts[name] - expected).abs().max() < 1e-3, name


def test_each_rank_holds_its_share(saved_model: SavedModel, in_ranks: Callable[..., Any]) -> None:
    model, folder = saved_model("smollm2")
    ranks = in_ranks(folder, 3)
    whole = TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=256)
    assert ranks.allocate(12) == [whole.allocate(12).num_bytes // 3] * 3
    num_bytes = sum(parameter.nbytes for parameter in model.parameters())
    for rank in ranks.ranks:
        held = sum(parameter.nbytes for parameter in rank.model.parameters())
        assert num_bytes / 3 < held < 1.1 * num_bytes / 3  # norms are whole, the vocabulary's last part padded


def test_hidden_states_are_whole_on_every_rank(saved_model: SavedModel, in_ranks: Callable[..., Any]) -> None:
    model, folder = saved_model("llama")
    whole = TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=256)
    ranks = in_ranks(folder, 2)
    for decoder in (whole, ranks.ranks[0]):
        decoder.capture([1])
    conversation(whole)
    conversation(ranks)
    assert (ranks.ranks[0].last_hidden - whole.last_hidden).abs().max() < 1e-3
    prefill = step(list(range(20)), 0)
    whole.forward(prefill)
    ranks.forward(prefill)
    assert (ranks.ranks[0].features - whole.features).abs().max() < 1e-3


class OneRank:
    """The first of two that nobody waits for."""

    rank, num_ranks = 0, 2

    def add(self, partial: Tensor) -> Tensor:
        return partial

    def gather(self, part: Tensor) -> Tensor:
        return part


def shard(folder: Path) -> PreTrainedModel:
    return load_shard(folder, OneRank(), torch.float32, torch.device("cpu"))


@pytest.fixture
def copied_model(saved_model: SavedModel, tmp_path: Path) -> Path:
    """A folder with one safetensors file that a test may spoil."""
    _, folder = saved_model("llama")
    tensors: dict[str, Tensor] = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    return tmp_path


def test_a_missing_tensor_is_named(copied_model: Path) -> None:
    path = copied_model / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path)
    with pytest.raises(ModelError, match=r"lack the tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        shard(copied_model)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_quantised_weights_are_refused(copied_model: Path, dtype: torch.dtype) -> None:
    """Without their scales, which lie beside them, they would load and mean nothing."""
    tensors = load_file(copied_model / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(dtype)
    save_file(tensors, copied_model / "model.safetensors")
    with pytest.raises(
        UnsupportedModelError, match=rf"{name} in .* is stored as (F8_E4M3|I8): .*take the model as it was before"
    ):
        shard(copied_model)


def test_a_mixture_of_experts_is_refused(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral", **sizes, **heads}))
    with pytest.raises(UnsupportedModelError, match="MixtralForCausalLM cannot be cut"):
        shard(tmp_path)


def test_merged_projections_are_refused(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt_neox", **sizes, "num_attention_heads": 4}))
    with pytest.raises(UnsupportedModelError, match="queries, keys and values come from one matrix"):
        shard(tmp_path)
