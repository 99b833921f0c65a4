"""Which drafter a configuration gives, and what is refused."""

import copy
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pilotfish.config import InTargetDrafterConfig
from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.in_target_factory import build_in_target_drafter
from pilotfish.errors import ModelError, ModelNotFoundError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import LoadedModel
from tests.support.tiny_models import tiny_eagle3_config


@pytest.fixture
def loaded(tiny_llama: LlamaForCausalLM) -> LoadedModel:
    return LoadedModel(copy.deepcopy(tiny_llama), Path(), "tiny", 64, 128, "the target's")


def build(loaded: LoadedModel, config: InTargetDrafterConfig) -> InTargetDrafter | None:
    decoder = TransformersDecoder(loaded.model, deterministic=False, max_context_tokens=128)
    return build_in_target_drafter(config, loaded, decoder, top_m=8)


@pytest.mark.parametrize("proposer", ["eagle3", "none"])
def test_the_configured_drafter(loaded: LoadedModel, tmp_path: Path, proposer: str) -> None:
    if proposer == "eagle3":
        save_eagle3(Eagle3Head(tiny_eagle3_config(tokenizer_fingerprint="the target's")), tmp_path)
    model = str(tmp_path) if proposer == "eagle3" else ""
    config = InTargetDrafterConfig(proposer=proposer, model=model)  # type: ignore[arg-type]
    drafter = build(loaded, config)
    assert ("none" if drafter is None else drafter.name) == proposer
    if drafter is not None:
        assert drafter.allocate(4) > 0


def test_a_head_of_another_target(loaded: LoadedModel, tmp_path: Path) -> None:
    save_eagle3(Eagle3Head(tiny_eagle3_config(tokenizer_fingerprint="other")), tmp_path)
    with pytest.raises(ModelError, match="another tokenizer"):
        build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path)))


def test_no_head(loaded: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="is no folder of a draft head"):
        build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path / "none")))
