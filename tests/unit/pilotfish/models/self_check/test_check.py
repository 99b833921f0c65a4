"""Every architecture is served right, on the fastest path that is, or refused; a sample."""

import math
from typing import Any

import pytest
from torch import Tensor
from transformers import CONFIG_MAPPING

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import silence_transformers
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.own_cache.text_cache import Rows
from pilotfish.models.self_check import check
from pilotfish.models.self_check.check import serving_path_of
from tests.support.architectures import examine

silence_transformers()


@pytest.mark.parametrize(
    "name",
    [
        *("llama, biases", "llama, yarn", "mistral, no window", "mixtral, window", "qwen2, window", "qwen3, window"),
        *("gemma2", "gemma3", "gpt_oss", "cohere2", "granite, multipliers", "opt"),
        *("phi3", "gpt2", "gpt_bigcode", "gpt_neox", "persimmon", "stablelm", "nemotron"),
    ],
)
def test_right_on_the_paged_kv_cache(name: str) -> None:
    finding = examine(name)
    assert (finding.outcome, finding.path, finding.reason) == ("right", "paged", "")
    assert finding.deviation is not None
    assert finding.deviation < 1e-3


@pytest.mark.parametrize(
    ("name", "path", "reason"),
    [
        ("falcon", "own cache, tiles, tiles", "no attention implementation"),
        ("gptj", "own cache, tiles, tiles", "no attention implementation"),
        ("xglm", "own cache, tiles, tiles", "no attention implementation"),
        ("bloom", "own cache, tiles, tiles", "6 of its 6 layers lack attention that takes another implementation"),
        ("minicpm3", "own cache, tiles, tiles", "6 of its 6 layers lack attention that takes another implementation"),
        ("llama4_text", "own cache, tiles, tiles", "logits differ"),
        ("qwen2_moe, window", "own cache, ", "logits differ"),
        ("mimo_v2_flash", "own cache, ", "does not run on a paged KV cache"),
        ("mamba", "own cache, single, single", "6 of its 6 layers lack attention that takes another implementation"),
        ("falcon_h1", "own cache, single, single", "logits differ"),
        ("qwen3_next", "own cache, single, single", "5 of its 6 layers lack attention that takes another"),
        ("rwkv", "own cache, single, single", "6 of its 6 layers lack attention that takes another"),
    ],
)
def test_right_with_transformers_own_cache(name: str, path: str, reason: str) -> None:
    finding = examine(name)
    assert finding.outcome == "right", finding.reason
    assert finding.path.startswith(path)
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bert", "with transformers' own cache they differ by"),
        ("doge", "with transformers' own cache they differ by"),
        ("llama, not causal", "with transformers' own cache they differ by"),
        ("moshi", "other logits with its cache than over the whole text"),
        ("llama, dynamic", "rotary scaling 'dynamic'"),
    ],
)
def test_refused(name: str, reason: str) -> None:
    finding = examine(name)
    assert finding.outcome == "refused"
    assert finding.reason.startswith("the architecture '")
    assert reason in finding.reason
    assert "\n" not in finding.reason


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "gemma3"])
def test_the_sizes_of_a_published_model_do_not_matter(model_type: str) -> None:
    """Checked by its config alone: weights of these would take gigabytes."""
    assert serving_path_of(CONFIG_MAPPING[model_type]()).is_paged


def test_a_window_beyond_any_text_of_the_check_is_noticed() -> None:
    config = CONFIG_MAPPING["llama4_text"](num_hidden_layers=2, attention_chunk_size=1 << 20)
    assert "logits differ" in serving_path_of(config).reason


@pytest.mark.parametrize("seed", [1, 2])
def test_rounding_in_a_deep_recurrent_model_is_no_fault(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_SEEDS", (seed,))
    config = CONFIG_MAPPING["qwen3_5_text"](num_hidden_layers=32)
    assert serving_path_of(config).own_cache_rows is Rows.ANY


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_decoders_whose_logits_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    def spoil(kind: Any) -> None:
        forward = kind.forward

        def spoilt(decoder: Any, step: StepInput) -> Tensor:
            logits: Tensor = forward(decoder, step).clone()
            logits[-1, -1] = value
            return logits

        monkeypatch.setattr(kind, "forward", spoilt)

    spoil(TransformersDecoder)
    assert "logits differ by inf" in serving_path_of(CONFIG_MAPPING["llama"](num_hidden_layers=2)).reason
    spoil(OwnCacheDecoder)
    with pytest.raises(UnsupportedModelError, match="own cache they differ by inf"):
        serving_path_of(CONFIG_MAPPING["llama"](num_hidden_layers=2))


def test_a_model_whose_own_logits_are_not_finite_is_refused() -> None:
    config = CONFIG_MAPPING["llama"](num_hidden_layers=2, rms_norm_eps=-100.0)  # roots of numbers below 0
    with pytest.raises(UnsupportedModelError, match=r"transformers cannot compute a small one .* not finite"):
        serving_path_of(config)
