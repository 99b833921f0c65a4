"""`engine.quantization: auto`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, EngineConfig
from pilotfish.engine.process import weight_format
from pilotfish.engine.process.weight_format import MemoryNeeds, available_bytes, formats_of, with_weight_format
from pilotfish.errors import ConfigError

ENGINE = EngineConfig(quantization="auto", kv_cache_tokens=1000)
SEVENTY = MemoryNeeds(matrix_values=68_000_000_000, other_values=2_000_000_000, kv_bytes=10_000_000_000)
GPU = ("none", "fp8", "int8")


def chosen(needs: MemoryNeeds, free_gb: float, formats: tuple[str, ...]) -> str:
    engine = replace(ENGINE, device="cuda") if "fp8" in formats else ENGINE
    return with_weight_format(engine, needs, int(free_gb * 1e9), formats).quantization  # type: ignore[arg-type]


def test_the_least_lossy_format_that_fits_is_taken() -> None:
    assert chosen(SEVENTY, 151, GPU) == "none"
    assert chosen(SEVENTY, 149, GPU) == "fp8"
    assert chosen(SEVENTY, 91, ("none", "int8", "int4")) == "int8"
    assert chosen(SEVENTY, 57, ("none", "int8", "int4")) == "int4"


def test_the_drafter_beside_the_target_takes_its_part() -> None:
    assert chosen(replace(SEVENTY, drafter_bytes=2_000_000_000), 151, GPU) == "fp8"


def test_where_nothing_fits_the_start_says_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"no format fits.*none 150\.0 GB, fp8 82\.0 GB.*80\.0 GB may be taken"):
        chosen(SEVENTY, 80, ("none", "fp8"))


def test_ranks_on_the_cpu_and_other_dtypes_have_no_choice() -> None:
    cpu = torch.device("cpu")
    assert formats_of(cpu, ENGINE, 1) == ["none", "lossless", "int8", "int4"]
    assert formats_of(cpu, ENGINE, 2) == ["none"]
    assert formats_of(cpu, replace(ENGINE, dtype="float32"), 1) == ["none"]
    assert formats_of(cpu, replace(ENGINE, compile=False), 1) == ["none"]


def test_what_stays_as_it_is_counts_in_the_engines_dtype(model_folder: Path) -> None:
    config = json.loads((model_folder / "config.json").read_bytes())
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 3}
    (model_folder / "config.json").write_text(json.dumps({**config, **shape}))
    needs = {
        dtype: MemoryNeeds.of_model(model_folder, EngineConfig(quantization="auto", kv_cache_tokens=0, dtype=dtype))
        for dtype in ("bfloat16", "float32")
    }
    assert needs["bfloat16"].kv_bytes == DEFAULT_KV_CACHE_TOKENS * 2 * 3 * 4 * 2, "what 0 means on the CPU"
    assert needs["float32"].num_bytes("none") == 2 * needs["bfloat16"].num_bytes("none")


def test_files_that_a_container_has_read_are_no_memory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("16000\n")
    (tmp_path / "memory.current").write_text("14000\n")
    (tmp_path / "memory.stat").write_text("anon 2600\nfile 11400\nactive_file 4400\ninactive_file 7000\n")
    assert weight_format._container_bytes(tmp_path) == 13400
    (tmp_path / "memory.max").write_text("max\n")
    assert weight_format._container_bytes(tmp_path) == float("inf")


def test_ranks_share_the_memory_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_format, "_machine_bytes", lambda: 1e9)
    monkeypatch.setattr(weight_format, "_container_bytes", lambda: 2e9)
    one, four = (available_bytes(torch.device("cpu"), ENGINE, num_ranks) for num_ranks in (1, 4))
    assert one == 4 * four == 9e8


def test_weights_that_were_quantised_before_are_taken_back_before_any_are_rounded() -> None:
    from_gguf = replace(SEVENTY, lossless_share=0.5625)
    assert chosen(from_gguf, 100, ("none", "lossless", "int8", "int4")) == "lossless"
    assert chosen(SEVENTY, 100, ("none", "lossless", "int8", "int4")) == "int8", "it saves nothing"


def test_features_that_are_kept_for_a_head_elsewhere_take_their_part() -> None:
    assert chosen(replace(SEVENTY, feature_bytes=2_000_000_000), 151, GPU) == "fp8"
