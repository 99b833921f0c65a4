import json
from pathlib import Path

import pytest

from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from pilotfish.models.store.catalogue import LocalFolder, resolve
from pilotfish.models.store.folder import (
    check_model_folder,
    check_weights,
    count_parameters,
    folder_bytes,
    read_metadata,
    text_fields,
)


def test_sound_folder(model_folder: Path) -> None:
    check_model_folder(model_folder)
    assert count_parameters(model_folder) == 6
    assert folder_bytes(model_folder) == sum(len(path.read_bytes()) for path in model_folder.iterdir())


def test_weights_that_lie_there_twice_count_once(model_folder: Path) -> None:
    """As Mistral's do on the hub: once more in a file that transformers does not read."""
    whole = model_folder / "model.safetensors"
    (model_folder / "consolidated.safetensors").write_bytes(whole.read_bytes())
    assert count_parameters(model_folder) == 6
    whole.rename(model_folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors", "b": "model-00001-of-00001.safetensors"}}
    (model_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert count_parameters(model_folder) == 6


def test_broken_weights_are_named(model_folder: Path) -> None:
    (model_folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        count_parameters(model_folder)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "download it again"),
        (b"\xff" * 100, "download it again"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "run `git lfs pull`"),
        (None, "download it again"),
    ],
    ids=["empty", "garbage", "pointer", "cut off"],
)
def test_weights_are_refused_before_anything_is_loaded(model_folder: Path, content: bytes | None, told: str) -> None:
    path = model_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    with pytest.raises(ModelError, match=rf"model\.safetensors cannot be read: .*{told}"):
        check_weights(model_folder)


def test_weights_that_cannot_be_read_are_told_from_missing_ones(model_folder: Path) -> None:
    path = model_folder / "model.safetensors"
    path.unlink()
    path.mkdir()
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read: Is a directory"):
        check_weights(model_folder)


def test_a_link_to_weights_that_are_gone_is_named(model_folder: Path) -> None:
    path = model_folder / "model.safetensors"
    path.unlink()
    path.symlink_to(model_folder / "gone")
    with pytest.raises(ModelError, match="there is no such file; download the model again"):
        check_weights(model_folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_file_is_named(model_folder: Path, file: str) -> None:
    (model_folder / file).unlink()
    with pytest.raises(ModelNotFoundError, match=file.removeprefix("model")):
        check_model_folder(model_folder)


@pytest.mark.parametrize("is_alone", [True, False])
def test_an_adapter_is_named_and_never_ignored(model_folder: Path, is_alone: bool) -> None:
    (model_folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    if is_alone:
        (model_folder / "config.json").unlink()
    source = resolve(str(model_folder))
    assert isinstance(source, LocalFolder)
    advice = (
        "and no model: serve its base model with it" if is_alone else r"beside a model: .*name that in target\.lora"
    )
    with pytest.raises(UnsupportedModelError, match=f"holds an adapter.*{advice}"):
        check_model_folder(source.folder)


def test_pickles_are_refused(model_folder: Path) -> None:
    (model_folder / "model.safetensors").rename(model_folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match="pickle"):
        check_model_folder(model_folder)


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_a_head_is_told_from_a_model(model_folder: Path, has_tokenizer: bool) -> None:
    config = json.loads((model_folder / "config.json").read_bytes())
    (model_folder / "config.json").write_text(json.dumps({**config, "draft_vocab_size": 4}))
    if not has_tokenizer:
        (model_folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"holds an EAGLE-3 head and no model: name it in draft\.head"):
        check_model_folder(model_folder)


def test_an_encoder_decoder_is_refused_by_name_whatever_else_it_lacks(tmp_path: Path) -> None:
    """As NLLB and T5 lie on the hub: without safetensors, and T5 without the length of a context."""
    (tmp_path / "pytorch_model.bin").touch()
    for name in ("m2m_100", "t5"):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name, "is_encoder_decoder": True}))
        for check in (check_model_folder, read_metadata):
            with pytest.raises(
                UnsupportedModelError, match=rf"an encoder-decoder \({name}\): only decoders are served"
            ):
                check(tmp_path)


def test_metadata(model_folder: Path) -> None:
    metadata = read_metadata(model_folder)
    assert (metadata.model_type, metadata.vocab_size, metadata.max_context_tokens) == ("llama", 300, 128)
    assert metadata.eos_token_ids == {0, 2}


def test_metadata_of_a_multimodal_model(model_folder: Path) -> None:
    text_config = {"vocab_size": 7, "max_position_embeddings": 9}
    (model_folder / "config.json").write_text(
        json.dumps({"model_type": "gemma3", "text_config": text_config, "eos_token_id": [5, 6]})
    )
    metadata = read_metadata(model_folder)
    assert (metadata.vocab_size, metadata.max_context_tokens) == (7, 9)
    assert metadata.eos_token_ids == {0, 2, 5, 6}


@pytest.mark.parametrize("text", ["{", "[]"])
def test_broken_config(model_folder: Path, text: str) -> None:
    (model_folder / "config.json").write_text(text)
    with pytest.raises(ModelNotFoundError, match="JSON"):
        read_metadata(model_folder)


def test_sizes_that_config_json_leaves_out_are_transformers_defaults(model_folder: Path) -> None:
    """As gemma-3-4b-it's is published."""
    text_config = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    (model_folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text_config}))
    metadata = read_metadata(model_folder)
    assert (metadata.vocab_size, metadata.max_context_tokens) == (262208, 131072)
    fields = text_fields(metadata.config)
    assert (fields["hidden_size"], fields["num_key_value_heads"], fields["head_dim"]) == (2560, 4, 256)


def test_sizes_under_an_architectures_own_names(model_folder: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20, "n_positions": 512}
    (model_folder / "config.json").write_text(json.dumps(config))
    metadata = read_metadata(model_folder)
    assert (metadata.vocab_size, metadata.max_context_tokens) == (50257, 512)
    fields = text_fields(metadata.config)
    assert (fields["hidden_size"], fields["num_hidden_layers"], fields["num_attention_heads"]) == (1280, 36, 20)


@pytest.mark.parametrize("where", ["rope_scaling", "rope_parameters"])
def test_the_context_of_a_longrope_ends_where_its_angles_change(model_folder: Path, where: str) -> None:
    """As Phi-3.5-mini and Phi-4-mini are published."""
    rope = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48}
    config: dict[str, object] = {"model_type": "phi3", "max_position_embeddings": 131072}
    if where == "rope_parameters":
        config |= {"rope_parameters": rope, "original_max_position_embeddings": 4096}
    else:
        config |= {"rope_scaling": rope}
    (model_folder / "config.json").write_text(json.dumps(config))
    assert read_metadata(model_folder).max_context_tokens == 4096


def test_config_without_a_context_length(model_folder: Path) -> None:
    (model_folder / "config.json").write_text(json.dumps({"model_type": "x", "vocab_size": 7}))
    with pytest.raises(UnsupportedModelError, match="max_position_embeddings"):
        read_metadata(model_folder)
