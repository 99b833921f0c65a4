"""A model with some of its layers computes with them as the whole one, and reads nothing else."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.parallel.partial_model import load_layers
from tests.support.tiny_llama import tiny_llama

NUM_LAYERS = 4


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    model = tiny_llama(num_hidden_layers=NUM_LAYERS, tie_word_embeddings=request.param)
    model.save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_layers_that_are_not_asked_for_need_not_be_there(folder: Path) -> None:
    whole = load_layers(folder, range(NUM_LAYERS), dtype=torch.float32)
    tensors = load_file(folder / "model.safetensors")
    others = (".layers.0.", ".layers.2.")
    rewrite(folder, {name: tensor for name, tensor in tensors.items() if not any(part in name for part in others)})
    part = load_layers(folder, [1, 3], dtype=torch.float32)
    states, positions = torch.randn(1, 6, 32), torch.arange(6)[None]
    for index in (1, 3):
        expected, found = (
            model.model.layers[index](
                states, position_ids=positions, position_embeddings=model.model.rotary_emb(states, positions)
            )
            for model in (whole, part)
        )
        assert torch.equal(found, expected)
    assert torch.equal(part.get_output_embeddings()(states), whole.get_output_embeddings()(states))
    assert torch.equal(part.get_input_embeddings().weight, tensors["model.embed_tokens.weight"])
    assert not part.get_output_embeddings().weight.requires_grad
    assert {tensor.is_meta for tensor in part.model.layers[2].parameters()} == {True}
    with pytest.raises(ModelError, match=r"lack the tensor model\.layers\.0\."):
        load_layers(folder, [0], dtype=torch.float32)


def test_the_whole_model_is_the_one_that_was_saved(folder: Path) -> None:
    token_ids = torch.tensor([[5, 6, 7, 8]])
    is_tied = "lm_head.weight" not in load_file(folder / "model.safetensors")
    expected = tiny_llama(num_hidden_layers=NUM_LAYERS, tie_word_embeddings=is_tied)(token_ids).logits
    found = load_layers(folder, range(NUM_LAYERS), dtype=torch.float32)(token_ids).logits
    torch.testing.assert_close(found, expected)


def test_weights_that_do_not_fit(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    rewrite(folder, {**tensors, "model.norm.weight": torch.ones(7)})
    with pytest.raises(ModelError, match=r"do not fit its config\.json.*norm\.weight"):
        load_layers(folder, [], dtype=torch.float32)
    quantised = tensors["model.layers.3.mlp.up_proj.weight"].to(torch.float8_e4m3fn)
    rewrite(folder, {**tensors, "model.layers.3.mlp.up_proj.weight": quantised})
    load_layers(folder, [0], dtype=torch.float32)
    with pytest.raises(UnsupportedModelError, match="take the model as it was before"):
        load_layers(folder, [3], dtype=torch.float32)
