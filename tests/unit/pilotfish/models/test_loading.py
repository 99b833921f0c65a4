import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, LlamaConfig, LlamaForCausalLM

from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from pilotfish.models.loading import load_model
from pilotfish.models.self_check.twin import twin_config, twin_of
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from tests.support.tiny_models import tiny_model


@pytest.fixture
def llama_folder(tokenizer_folder: Path) -> Path:
    generation_config = (tokenizer_folder / "generation_config.json").read_bytes()
    config = LlamaConfig(**json.loads((tokenizer_folder / "config.json").read_bytes()))
    LlamaForCausalLM(config).save_pretrained(tokenizer_folder)
    (tokenizer_folder / "generation_config.json").write_bytes(generation_config)
    return tokenizer_folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loads_for_inference(llama_folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    loaded = load_model(str(llama_folder), cache_dir=tmp_path, dtype=dtype, device="cpu")
    assert (loaded.vocab_size, loaded.max_context_tokens, loaded.model_id) == (300, 128, "tiny")
    assert loaded.folder == llama_folder
    assert loaded.fingerprint == tokenizer_fingerprint(llama_folder)
    assert not loaded.model.training
    assert all(p.dtype == dtype and not p.requires_grad for p in loaded.model.parameters())
    assert loaded.model(torch.tensor([[1, 5]])).logits.shape == (1, 2, 300)


@pytest.mark.parametrize("kind", ["gpt2", "phi3"])
def test_a_model_whose_sizes_have_other_names_or_defaults(tokenizer_folder: Path, tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind, torch.float32, vocab_size=300)
    model.save_pretrained(tokenizer_folder)
    if kind == "phi3":
        config = json.loads((tokenizer_folder / "config.json").read_bytes())
        del config["max_position_embeddings"]
        (tokenizer_folder / "config.json").write_text(json.dumps(config))
    loaded = load_model(str(tokenizer_folder), cache_dir=tmp_path, dtype=torch.float32)
    assert (loaded.vocab_size, loaded.max_context_tokens) == (300, {"gpt2": 256, "phi3": 4096}[kind])
    tokens = torch.tensor([[1, 5, 9]])
    assert torch.equal(loaded.model(tokens).logits, model(tokens).logits)


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"is_encoder_decoder": True, "model_type": "t5"},
            r"holds an encoder-decoder \(t5\): only decoders are served",
        ),
        ({"model_type": "made_up"}, "unknown architecture 'made_up'"),
        ({"model_type": "bert"}, "'bert' cannot be served"),
        ({"model_type": "made_up", "auto_map": {"AutoModelForCausalLM": "code.Model"}}, "never run"),
    ],
)
def test_what_cannot_be_served(model_folder: Path, tmp_path: Path, changes: dict[str, object], message: str) -> None:
    edit_config(model_folder, **changes)
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(str(model_folder), cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("model_type", "path"), [("llava", "on the paged KV cache"), ("falcon", "with transformers' own cache")]
)
def test_whatever_transformers_has_a_class_for(
    tokenizer_folder: Path, tmp_path: Path, model_type: str, path: str
) -> None:
    config = twin_config(CONFIG_MAPPING[model_type]())
    saved = twin_of(config, 1)
    saved.save_pretrained(tokenizer_folder)
    loaded = load_model(str(tokenizer_folder), cache_dir=tmp_path, dtype=torch.float32)
    assert type(loaded.model) is type(saved)
    assert loaded.vocab_size == config.get_text_config().vocab_size
    assert str(loaded.path).startswith(path)


def test_damaged_weights(llama_folder: Path, tmp_path: Path) -> None:
    weights = llama_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cannot be read: .*download it again"):
        load_model(str(llama_folder), cache_dir=tmp_path)


def test_weights_that_do_not_fit_the_config(llama_folder: Path, tmp_path: Path) -> None:
    edit_config(llama_folder, num_hidden_layers=2)
    with pytest.raises(ModelError, match="lack"):
        load_model(str(llama_folder), cache_dir=tmp_path)


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        load_model("nothing", cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("package", "quantization_config"),
    [
        ("optimum", {"quant_method": "gptq", "bits": 4}),
        ("gptqmodel", {"quant_method": "awq", "bits": 4}),
        ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
        ("compressed_tensors", {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}),
    ],
)
def test_a_missing_quantiser_is_named_before_weights_are_read(
    model_folder: Path, tmp_path: Path, package: str, quantization_config: dict[str, object]
) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    edit_config(model_folder, quantization_config=quantization_config)  # whose weights are none
    method, name = quantization_config["quant_method"], package.replace("_", ".")
    with pytest.raises(UnsupportedModelError, match=rf"(?is)quantised by {method}, which needs a package.* {name}"):
        load_model(str(model_folder), cache_dir=tmp_path)


def test_an_unknown_quantiser(model_folder: Path, tmp_path: Path) -> None:
    edit_config(model_folder, quantization_config={"quant_method": "made_up"})
    with pytest.raises(UnsupportedModelError, match="quantised by made_up"):
        load_model(str(model_folder), cache_dir=tmp_path)


def test_fp8_blocks_are_computed_in_bfloat16(tokenizer_folder: Path, tmp_path: Path) -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 2, "head_dim": 64}
    model = tiny_model("qwen3", torch.bfloat16, vocab_size=300, **sizes)
    model.save_pretrained(tokenizer_folder)
    path = tokenizer_folder / "model.safetensors"
    stored = {}
    for name, tensor in load_file(path).items():
        stored[name] = tensor
        if ".layers." in name and tensor.dim() == 2:
            stored[name] = (tensor / 0.01).to(torch.float8_e4m3fn)
            stored[f"{name}_scale_inv"] = torch.full((-(-tensor.shape[0] // 128), 1), 0.01)
    save_file(stored, path, metadata={"format": "pt"})
    edit_config(tokenizer_folder, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    loaded = load_model(str(tokenizer_folder), cache_dir=tmp_path).model
    tokens = torch.tensor([[1, 5, 9]])
    assert (loaded(tokens).logits - model(tokens).logits).std() < 0.1 * model(tokens).logits.std()
    with pytest.raises(UnsupportedModelError, match=r"is computed in bfloat16: set engine\.dtype to bfloat16"):
        load_model(str(tokenizer_folder), cache_dir=tmp_path, dtype=torch.float32)
