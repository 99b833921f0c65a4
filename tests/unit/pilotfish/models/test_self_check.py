"""Every architecture is answered right or refused. benchmarks/architectures.py takes all of them; here is a sample."""

import math

import pytest
from torch import Tensor
from transformers import CONFIG_MAPPING

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import silence_transformers
from pilotfish.models.self_check import require_served_right
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
def test_right(name: str) -> None:
    finding = examine(name)
    assert (finding.outcome, finding.reason) == ("right", "")
    assert finding.deviation is not None
    assert finding.deviation < 1e-3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("falcon_h1", "logits differ"),
        ("diffllama", "logits differ"),
        ("bart", "logits differ"),
        ("doge", "logits differ"),
        ("llama4_text", "logits differ"),
        ("qwen2_moe, window", "logits differ"),
        ("phimoe, window", "logits differ"),
        ("llama, not causal", "logits differ"),
        ("xglm", "no attention implementation"),
        ("mimo_v2_flash", "does not run on a paged KV cache"),
        ("minimax_m3, sparse", "does not run on a paged KV cache"),
        ("falcon", "no attention implementation"),
        ("bloom", "6 of its 6 layers lack attention that takes another implementation"),
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
    require_served_right(CONFIG_MAPPING[model_type]())


def test_a_window_beyond_any_text_of_the_check_is_noticed() -> None:
    config = CONFIG_MAPPING["llama4_text"](num_hidden_layers=2, attention_chunk_size=1 << 20)
    with pytest.raises(UnsupportedModelError, match="llama4_text"):
        require_served_right(config)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_decoder_whose_logits_are_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    forward = TransformersDecoder.forward

    def spoilt(decoder: TransformersDecoder, step: StepInput) -> Tensor:
        logits = forward(decoder, step).clone()
        logits[-1, -1] = value
        return logits

    monkeypatch.setattr(TransformersDecoder, "forward", spoilt)
    with pytest.raises(UnsupportedModelError, match="logits differ by inf"):
        require_served_right(CONFIG_MAPPING["llama"](num_hidden_layers=2))


def test_a_model_whose_own_logits_are_not_finite_is_refused() -> None:
    config = CONFIG_MAPPING["llama"](num_hidden_layers=2, rms_norm_eps=-100.0)  # roots of numbers below 0
    with pytest.raises(UnsupportedModelError, match=r"transformers cannot compute a small one .* not finite"):
        require_served_right(config)
