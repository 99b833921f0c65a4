"""Which decoder a model gets, and which models get none."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING

from pilotfish.config import EngineConfig, Quantization
from pilotfish.errors import ConfigError, UnsupportedModelError
from pilotfish.models.factory import BuiltDecoder, build_decoder
from pilotfish.models.loading import LoadedModel
from pilotfish.models.native import layout
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.own_cache.text_cache import Rows
from pilotfish.models.self_check.twin import twin_of
from tests.support.tiny_llama import tiny_llama
from tests.support.tiny_models import tiny_model

CONTEXT = 128


def loaded(**changes: Any) -> LoadedModel:
    model = tiny_llama(spread=1.0, num_hidden_layers=1, num_attention_heads=2, **changes).to(torch.bfloat16)
    return LoadedModel(model, Path(), "tiny", 64, CONTEXT, "none")


def build(tmp_path: Path, model: LoadedModel | None = None, **settings: Any) -> BuiltDecoder:
    engine = EngineConfig(**{"deterministic": False, **settings})
    return build_decoder(model or loaded(), engine, num_threads=1, cache_dir=tmp_path)


def test_rotary_scaling_by_length_is_refused_whatever_the_decoder(tmp_path: Path) -> None:
    """The kernels' tables hold one angle a position: they would run such a model, and wrongly."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    with pytest.raises(UnsupportedModelError, match="dynamic"):
        build(tmp_path, loaded(rope_parameters=rope))
    assert list(tmp_path.iterdir()) == [], "refused before anything is compiled"


def test_a_context_beyond_the_models_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trained for 128"):
        build(tmp_path, max_context_tokens=129)


@pytest.mark.parametrize("quantization", ["none", "lossless"])
def test_without_a_compiler_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantization: Quantization
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    built = build(tmp_path, quantization=quantization)
    assert (built.decoder.name, built.decoder.max_context_tokens) == ("transformers", CONTEXT)


def test_quantised_weights_without_the_kernels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that quietly ran on bfloat16 would be slower, and answer otherwise, than its neighbours."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match=r"engine\.quantization is int4.*cannot run tiny.*Set engine\.quantization"):
        build(tmp_path, quantization="int4")


def test_blocks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="intermediate_size is 48, not a multiple of 32"):
        build(tmp_path, quantization="int8")


def test_kernels_that_would_answer_otherwise_are_not_used(
    kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model("mistral", torch.bfloat16)

    def build_it() -> str:
        own = LoadedModel(copy.deepcopy(model), Path(), "tiny", model.config.vocab_size, CONTEXT, "none")
        return build(kernel_cache, own).decoder.name

    assert build_it() == "native"
    monkeypatch.setattr(layout, "sliding_window", lambda _: 0)
    assert build_it() == "transformers"
    assert "their logits differ from transformers'" in caplog.text


def test_kernels_whose_logits_are_not_finite_are_not_used(
    kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forward = NativeDecoder.forward
    monkeypatch.setattr(NativeDecoder, "forward", lambda decoder, step: forward(decoder, step) * math.nan)
    assert build(kernel_cache).decoder.name == "transformers"
    assert "their logits differ from transformers' by inf" in caplog.text


def test_a_model_that_would_be_answered_wrongly_is_refused(tmp_path: Path) -> None:
    own = loaded()
    own.model.config.is_causal = False
    with pytest.raises(UnsupportedModelError, match=r"'llama' cannot be served.*take a model of another one"):
        build(tmp_path, own)


def of_kind(model_type: str) -> LoadedModel:
    """A small one in bfloat16."""
    model = twin_of(CONFIG_MAPPING[model_type](num_hidden_layers=4), 1, attention=None).bfloat16()
    return LoadedModel(model, Path(), model_type, model.config.vocab_size, CONTEXT, "none")


@pytest.mark.parametrize(
    ("model_type", "deterministic", "rows", "is_deterministic"),
    [
        ("falcon", True, Rows.TILES, True),
        ("falcon", False, Rows.ANY, False),
        ("qwen3_next", True, Rows.SINGLE, False),
        ("qwen3_next", False, Rows.ANY, False),
        ("mamba", False, Rows.SINGLE, False),
    ],
)
def test_transformers_own_cache_is_used_where_our_attention_cannot_be(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    model_type: str,
    deterministic: bool,
    rows: Rows,
    is_deterministic: bool,
) -> None:
    built = build(tmp_path, of_kind(model_type), deterministic=deterministic)
    assert isinstance(built.decoder, OwnCacheDecoder)
    assert (built.decoder.rows, built.deterministic) == (rows, is_deterministic)
    assert f"{model_type} is served with transformers' own cache, one sequence a forward" in caplog.text
    assert ("do not pay" in caplog.text) == (rows is Rows.SINGLE)


def test_transformers_own_cache_takes_no_quantised_weights(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quantization is int8, and falcon is served with .* set engine\.quant"):
        build(tmp_path, of_kind("falcon"), quantization="int8")


def test_what_transformers_computes_in_float32_alone_is_refused_in_bfloat16(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"inkling2_text in bfloat16 .*: set engine\.dtype to float32"):
        build(tmp_path, of_kind("inkling2_text"))
