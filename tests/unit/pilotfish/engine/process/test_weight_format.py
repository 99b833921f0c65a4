"""`engine.quantization: auto`."""

from dataclasses import replace

import pytest
import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.process.weight_format import MemoryNeeds, formats_of, with_weight_format
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
    assert formats_of(cpu, ENGINE, 1) == ["none", "int8", "int4"]
    assert formats_of(cpu, ENGINE, 2) == ["none"]
    assert formats_of(cpu, replace(ENGINE, dtype="float32"), 1) == ["none"]
    assert formats_of(cpu, replace(ENGINE, compile=False), 1) == ["none"]
