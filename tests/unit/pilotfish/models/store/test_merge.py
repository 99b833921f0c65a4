"""A LoRA adapter merged into a model, against the sum that peft computes beside each layer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from pilotfish.models.loading import load_model
from pilotfish.models.store.progress import PullProgress, PullStage
from pilotfish.models.store.pull import merge_in_subprocess, pull_model
from tests.support.tiny_models import tiny_model

RANK, ALPHA = 4, 24
PROMPT = torch.tensor([[1, 5, 9, 40, 7]])


@pytest.fixture
def base(tokenizer_folder: Path, request: pytest.FixtureRequest) -> tuple[Path, PreTrainedModel]:
    model = tiny_model(getattr(request, "param", "qwen3"), torch.float32, vocab_size=300)
    model.save_pretrained(tokenizer_folder)
    return tokenizer_folder, model


def write_adapter(folder: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    values = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": RANK, "lora_alpha": ALPHA, **config}
    given = {name: value for name, value in values.items() if value is not None}
    (folder / "adapter_config.json").write_text(json.dumps(given))
    save_file(
        {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}, folder / "adapter_model.safetensors"
    )
    return folder


def adapted(model: PreTrainedModel, modules: list[str], scale: float) -> dict[str, Tensor]:
    """Random matrices for the modules, which the model from now on computes beside its own layers, as peft does."""
    tensors: dict[str, Tensor] = {}
    for name in modules:
        module = model.get_submodule(name)
        assert isinstance(module.weight, Tensor)
        rows, columns = module.weight.shape
        if isinstance(module, nn.Embedding):
            a, b = torch.randn(RANK, rows) / 8, torch.randn(columns, RANK) / 8
            tensors |= {f"{name}.lora_embedding_A": a, f"{name}.lora_embedding_B": b}
            beside: Callable[[Tensor], Tensor] = lambda tokens, a=a, b=b: a.T[tokens] @ b.T  # noqa: E731
        else:
            if not isinstance(module, nn.Linear):
                rows, columns = columns, rows  # GPT-2's
            a, b = torch.randn(RANK, columns) / 8, torch.randn(rows, RANK) / 8
            tensors |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
            beside = lambda states, a=a, b=b: states @ a.T @ b.T  # noqa: E731

        def hook(module: nn.Module, inputs: tuple[Tensor], output: Tensor, beside: Any = beside) -> Tensor:
            return output + scale * beside(inputs[0])

        module.register_forward_hook(hook)  # type: ignore[arg-type]
    return tensors


@pytest.mark.parametrize(
    ("base", "modules", "config", "scale"),
    [
        ("qwen3", ["model.layers.0.self_attn.q_proj", "model.layers.2.mlp.down_proj"], {}, ALPHA / RANK),
        ("qwen3", ["model.layers.1.self_attn.o_proj"], {"use_rslora": True}, ALPHA / 2),
        ("qwen3", ["model.layers.1.self_attn.o_proj"], {"lora_alpha": None}, 2.0),  # peft's own alpha is 8
        ("qwen3", ["model.layers.1.self_attn.v_proj"], {"alpha_pattern": {"self_attn.v_proj": 8}}, 2.0),
        ("qwen3", ["lm_head", "model.embed_tokens"], {}, ALPHA / RANK),
        ("gpt2", ["transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_fc"], {"fan_in_fan_out": True}, ALPHA / RANK),
    ],
    indirect=["base"],
)
def test_a_merged_adapter_answers_token_for_token(
    base: tuple[Path, PreTrainedModel], tmp_path: Path, modules: list[str], config: dict[str, Any], scale: float
) -> None:
    folder, model = base
    plain = model.generate(PROMPT, max_new_tokens=40, do_sample=False)
    adapter = write_adapter(tmp_path / "style", adapted(model, modules, scale), **config)
    loaded = load_model(str(folder), cache_dir=tmp_path / "cache", adapter=str(adapter), dtype=torch.float32)
    expected = model.generate(PROMPT, max_new_tokens=40, do_sample=False)
    assert not torch.equal(expected, plain)
    assert torch.equal(loaded.model.generate(PROMPT, max_new_tokens=40, do_sample=False), expected)
    assert torch.allclose(loaded.model(PROMPT).logits, model(PROMPT).logits, atol=1e-5)
    assert loaded.model_id == "tiny+style"  # targets with and without it are not of one pool


def test_what_was_trained_whole_is_replaced(base: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, model = base
    weight = torch.randn_like(model.lm_head.weight)
    adapter = write_adapter(tmp_path / "style", {"lm_head.weight": weight})
    merged = load_model(str(folder), cache_dir=tmp_path / "cache", adapter=str(adapter), dtype=torch.float32).model
    assert torch.equal(merged.lm_head.weight, weight)


def test_an_embedding_is_saved_whole_beside_its_matrices(base: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    """As peft's save_pretrained does once embed_tokens is among its target_modules."""
    folder, model = base
    tensors = adapted(model, ["model.embed_tokens"], ALPHA / RANK)
    tensors["model.embed_tokens.base_layer.weight"] = model.get_input_embeddings().weight.clone()
    adapter = write_adapter(tmp_path / "style", tensors)
    loaded = load_model(str(folder), cache_dir=tmp_path / "cache", adapter=str(adapter), dtype=torch.float32)
    assert torch.allclose(loaded.model(PROMPT).logits, model(PROMPT).logits, atol=1e-5)


def test_an_adapter_is_merged_once_and_anew_when_it_has_changed(
    base: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    folder, model = base
    adapter = write_adapter(tmp_path / "style", adapted(model, ["lm_head"], 6.0))

    stages: list[PullStage] = []

    def pulled() -> Path:
        def progress(report: PullProgress) -> None:
            stages.append(report.stage)

        return pull_model(str(folder), tmp_path / "cache", progress, adapter=str(adapter))

    first = pulled()
    assert stages == [PullStage.MERGE, PullStage.PUBLISH, PullStage.DONE]
    written_ns = (first / "model.safetensors").stat().st_mtime_ns
    assert pulled() == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written_ns
    write_adapter(adapter, adapted(model, ["model.layers.0.mlp.up_proj"], 6.0))
    assert (second := pulled()) != first
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert (pulled() / "chat_template.jinja").is_file()
    assert not (second / "chat_template.jinja").exists()
    (adapter / "chat_template.jinja").write_text("the adapter's")
    assert (pulled() / "chat_template.jinja").read_text() == "the adapter's"


NAME = "model.layers.0.self_attn.q_proj"
PAIR = {f"{NAME}.lora_A.weight": torch.ones(RANK, 64), f"{NAME}.lora_B.weight": torch.ones(64, RANK)}


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        (PAIR, {"peft_type": "IA3"}, r"of another kind \(peft_type IA3\): merge it with peft"),
        (PAIR, {"use_dora": True}, r"\(use_dora\)"),
        (PAIR, {"init_lora_weights": "pissa"}, r"\(init_lora_weights pissa\)"),
        ({name.replace("0", "7"): each for name, each in PAIR.items()}, {}, r"no weight model\.layers\.7\.self_attn"),
        (
            {**PAIR, f"{NAME}.lora_B.weight": torch.ones(32, RANK)},
            {},
            r"has the shape \[64, 64\] there, and \[32, 64\]",
        ),
        ({f"{NAME}.lora_A.weight": torch.ones(RANK, 64)}, {}, "holds one of the two matrices"),
    ],
)
def test_what_cannot_be_merged(
    base: tuple[Path, PreTrainedModel], tmp_path: Path, tensors: dict[str, Tensor], config: dict[str, Any], message: str
) -> None:
    adapter = write_adapter(tmp_path / "style", tensors, **config)
    with pytest.raises(ModelError, match=message):
        pull_model(str(base[0]), tmp_path / "cache", adapter=str(adapter))


@pytest.mark.parametrize("base", ["llama"], indirect=True)
@pytest.mark.parametrize("has_both", [False, True])
@pytest.mark.parametrize("name", ["model.embed_tokens", "lm_head"])
def test_an_embedding_that_is_the_output_as_well(
    base: tuple[Path, PreTrainedModel], tmp_path: Path, name: str, *, has_both: bool
) -> None:
    """Whether the file holds it once or twice."""
    folder, model = base
    if has_both:
        tensors = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        assert "lm_head.weight" in tensors
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    kind = "" if name == "lm_head" else "embedding_"
    adapter = write_adapter(
        tmp_path / "style",
        {f"{name}.lora_{kind}A": torch.ones(RANK, 300), f"{name}.lora_{kind}B": torch.ones(64, RANK)},
    )
    with pytest.raises(UnsupportedModelError, match="embedding is its output layer as well"):
        merge_in_subprocess(folder, adapter, tmp_path)


def test_another_tokenizer(base: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "style", PAIR)
    tokenizer = json.loads((base[0] / "tokenizer.json").read_bytes())
    tokenizer["added_tokens"].append({"id": 299, "content": "<new>", "special": True})
    (adapter / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UnsupportedModelError, match="has another tokenizer"):
        pull_model(str(base[0]), tmp_path / "cache", adapter=str(adapter))


def test_a_folder_without_an_adapter(base: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="holds no LoRA adapter"):
        pull_model(str(base[0]), tmp_path / "cache", adapter=str(base[0]))
    with pytest.raises(UnsupportedModelError, match="is a model and no LoRA adapter"):
        pull_model(str(base[0]), tmp_path / "cache", adapter="smollm2-135m-instruct")


def test_a_quantised_model(base: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    path = base[0] / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "quantization_config": {"quant_method": "awq"}}))
    with pytest.raises(UnsupportedModelError, match="is quantised, and an adapter is added to weights that are not"):
        pull_model(str(base[0]), tmp_path / "cache", adapter=str(write_adapter(tmp_path / "style", PAIR)))
