"""Which drafter a configuration gives, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pilotfish.config import InTargetDrafterConfig
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.in_target_factory import build_in_target_drafter
from pilotfish.errors import ConfigError, ModelError, ModelNotFoundError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.eagle3.checkpoint import save_eagle3
from pilotfish.models.eagle3.config import Eagle3Config
from pilotfish.models.eagle3.module import Eagle3Head
from pilotfish.models.loading import LoadedModel
from pilotfish.models.medusa.checkpoint import save_medusa
from pilotfish.models.medusa.config import MedusaConfig
from pilotfish.models.medusa.module import MedusaHeads

CONFIG = Eagle3Config(
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=64,
    draft_vocab_size=40,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=128,
    feature_layers=(0, 1, 1),
    tokenizer_fingerprint="the target's",
)


@pytest.fixture
def loaded(tiny_llama: LlamaForCausalLM) -> LoadedModel:
    return LoadedModel(copy.deepcopy(tiny_llama), Path(), "tiny", 64, 128, "the target's")


def build(loaded: LoadedModel, config: InTargetDrafterConfig) -> InTargetDrafter | None:
    decoder = TransformersDecoder(loaded.model, deterministic=False, max_context_tokens=128)
    return build_in_target_drafter(config, loaded, decoder, top_m=8)


def test_none(loaded: LoadedModel) -> None:
    assert build(loaded, InTargetDrafterConfig()) is None


def test_eagle3(loaded: LoadedModel, tmp_path: Path) -> None:
    save_eagle3(Eagle3Head(CONFIG), tmp_path)
    drafter = build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path)))
    assert drafter is not None
    assert drafter.name == "eagle3"
    assert drafter.allocate(4) > 0


def test_medusa(loaded: LoadedModel, tmp_path: Path) -> None:
    save_medusa(MedusaHeads(MedusaConfig(hidden_size=32, vocab_size=64, num_heads=2, draft_vocab_size=64)), tmp_path)
    drafter = build(loaded, InTargetDrafterConfig(proposer="medusa", model=str(tmp_path)))
    assert drafter is not None
    assert drafter.name == "medusa"
    save_medusa(MedusaHeads(MedusaConfig(hidden_size=48, vocab_size=64, num_heads=2, draft_vocab_size=64)), tmp_path)
    with pytest.raises(ModelError, match="hidden size is 48, the target's 32"):
        build(loaded, InTargetDrafterConfig(proposer="medusa", model=str(tmp_path)))


@pytest.mark.parametrize("exit_layer", [0, 1])
def test_early_exit(loaded: LoadedModel, exit_layer: int) -> None:
    drafter = build(loaded, InTargetDrafterConfig(proposer="early_exit", exit_layer=exit_layer))
    assert drafter is not None
    assert drafter.name == "early_exit"


def test_an_exit_behind_the_last_layer(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="exit_layer is 2; tiny has 2 layers"):
        build(loaded, InTargetDrafterConfig(proposer="early_exit", exit_layer=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 64, "head_dim": 16}, "another target: its hidden size is 64, the target's 32"),
        ({"tokenizer_fingerprint": "other"}, "another tokenizer"),
        ({"vocab_size": 96}, "its vocabulary has 96 tokens, the target's 64"),
    ],
)
def test_heads_of_another_target(
    loaded: LoadedModel, tmp_path: Path, change: dict[str, int | str], message: str
) -> None:
    save_eagle3(Eagle3Head(dataclasses.replace(CONFIG, **change)), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=message):
        build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path)))


def test_no_heads(loaded: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="is no folder of a draft head"):
        build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match="needs the folder of its heads"):
        InTargetDrafterConfig(proposer="eagle3")
