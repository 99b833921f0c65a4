"""`engine.quantization: auto` for models in folders."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from pilotfish.config import EngineConfig, config_from_dict
from pilotfish.engine.process import factory
from pilotfish.engine.process.weight_format import MemoryNeeds, lossless_share
from pilotfish.models.native.quantise import quantise
from tests.support.quantised_weights import dequantise
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama

ENGINE = EngineConfig(quantization="auto", kv_cache_tokens=1000)


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama in bfloat16 that the native kernels run."""
    folder = tmp_path_factory.mktemp("wide")
    save_printable_tokenizer(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE, head_dim=16, spread=1.0, **sizes)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def test_what_a_model_needs_is_read_from_its_folder(target_folder: Path, head_folder: Path) -> None:
    needs = MemoryNeeds.of_model(target_folder, ENGINE, drafter=head_folder)
    size = sum(path.stat().st_size for path in target_folder.glob("*.safetensors"))
    num_values = needs.matrix_values + needs.other_values
    assert abs(num_values * 2 - size) < 0.05 * size, "the folder's weights are bfloat16"
    assert needs.drafter_bytes > 0
    keeping = MemoryNeeds.of_model(target_folder, ENGINE, drafter=head_folder, num_feature_layers=3)
    assert keeping.num_bytes("none") - needs.num_bytes("none") == 1000 * 3 * 32 * 2
    half = MemoryNeeds.of_model(target_folder, ENGINE, num_ranks=2)
    assert half.matrix_values == needs.matrix_values // 2
    assert half.kv_bytes == needs.kv_bytes // 2
    beside = MemoryNeeds.of_model(target_folder, ENGINE, num_ranks=2, drafter=head_folder)
    assert beside.drafter_bytes - needs.drafter_bytes == PRINTABLE_VOCAB_SIZE * 32 * 2, "whole embeddings"


@pytest.mark.parametrize(("free_bytes", "expected"), [(10**9, "bfloat16"), (None, "bfloat16, int8")])
def test_an_engine_starts_with_the_format_that_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wide_folder: Path, free_bytes: int | None, expected: str
) -> None:
    engine = {"quantization": "auto", "kv_cache_tokens": 512, "num_threads": 1}
    config = config_from_dict(
        {
            "target": {"model": str(wide_folder), "engine": engine, "drafter": {"proposer": "none"}},
            "cache_dir": str(tmp_path),
        }
    )
    needs = MemoryNeeds.of_model(wide_folder, config.target.engine)
    free_bytes = free_bytes or needs.num_bytes("none") - 1
    monkeypatch.setattr(factory, "available_bytes", lambda *_: free_bytes)
    dtype = factory.build_engine(config, "target").model.dtype
    assert dtype.split(" weights")[0] == expected


def test_what_lossless_saves_is_seen_in_the_weights(wide_folder: Path, tmp_path: Path) -> None:
    assert lossless_share(wide_folder) == 1.0, "random bfloat16"
    before = AutoModelForCausalLM.from_pretrained(wide_folder, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, weight in before.named_parameters():
            if ".layers." in name and weight.dim() == 2:
                weight.copy_(dequantise(quantise(weight, "int4")))
    before.save_pretrained(tmp_path)
    assert lossless_share(tmp_path) == 0.625 / 2, "as after int4 in blocks"
