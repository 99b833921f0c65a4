"""A model with blocks that add nothing says what the one without them says."""

import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.shared.deep_model import deepened, deepened_exit
from pilotfish.drafters.early_exit.checkpoint import load_exit, save_exit
from pilotfish.drafters.early_exit.config import ExitConfig
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.models.loading import load_model
from tests.support.tiny_llama import save_printable_tokenizer, tiny_llama

FACTOR = 3


def shallow_folder(folder: Path) -> Path:
    tiny_llama(vocab_size=96).to(torch.bfloat16).save_pretrained(folder)
    save_printable_tokenizer(folder)
    return folder


def test_the_logits_are_the_shallow_models_to_the_bit(tmp_path: Path) -> None:
    shallow = shallow_folder(tmp_path / "shallow")
    deep = deepened(shallow, tmp_path / "cache" / "deep", FACTOR)
    models = [AutoModelForCausalLM.from_pretrained(folder) for folder in (shallow, deep)]
    num_layers = [model.config.num_hidden_layers for model in models]
    assert num_layers == [2, 2 * FACTOR]
    tokens = torch.arange(1, 40)[None]
    logits = [model(tokens).logits for model in models]
    assert torch.equal(*logits)
    assert logits[0].std() > 0


def test_the_blocks_that_add_are_spread_evenly_and_the_last_is_one(tmp_path: Path) -> None:
    deep = deepened(shallow_folder(tmp_path / "shallow"), tmp_path / "deep", FACTOR)
    layers = AutoModelForCausalLM.from_pretrained(deep).model.layers
    for part in ("self_attn.o_proj", "mlp.down_proj"):
        adds = [bool(layer.get_submodule(part).weight.any()) for layer in layers]
        assert adds == [False, False, True] * 2
    # The others have all the weights that take time.
    assert all(layer.mlp.gate_proj.weight.all() for layer in layers)


def test_it_is_written_once_and_whole(tmp_path: Path) -> None:
    shallow = shallow_folder(tmp_path / "shallow")
    deep = deepened(shallow, tmp_path / "deep", FACTOR)
    assert (deep / "tokenizer.json").read_bytes() == (shallow / "tokenizer.json").read_bytes()
    written = (deep / "model.safetensors").stat().st_mtime_ns
    assert deepened(shallow, deep, FACTOR) == deep
    assert (deep / "model.safetensors").stat().st_mtime_ns == written
    assert json.loads((deep / "config.json").read_text())["num_hidden_layers"] == 2 * FACTOR
    assert {path.name for path in tmp_path.iterdir()} == {"shallow", "deep"}


def test_an_exit_leaves_the_deep_model_with_the_hidden_states_that_it_was_trained_on(tmp_path: Path) -> None:
    shallow = shallow_folder(tmp_path / "shallow")
    deep = deepened(shallow, tmp_path / "deep", FACTOR)
    target = load_model(str(shallow), cache_dir=tmp_path)
    config = ExitConfig(exit_layer=1, hidden_size=32, vocab_size=96, draft_vocab_size=96)
    save_exit(ExitHead(config, target.model), tmp_path / "exit")
    for _ in range(2):
        folder = deepened_exit(tmp_path / "exit", tmp_path / "deep-exit", FACTOR)
    head = load_exit(folder, load_model(str(deep), cache_dir=tmp_path))
    assert head.config.exit_layer == FACTOR
    tokens = torch.arange(1, 40)[None]
    states = [
        AutoModelForCausalLM.from_pretrained(path)(tokens, output_hidden_states=True).hidden_states[num_layers]
        for path, num_layers in ((shallow, 1), (deep, head.config.exit_layer))
    ]
    assert torch.equal(*states)
