"""Which drafter a configuration gives, and what is refused."""

import copy
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pilotfish.config import Config, DraftConfig, InTargetDrafterConfig, TargetConfig
from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.engine.process.factory import build_in_target_drafter
from pilotfish.errors import ModelError, ModelNotFoundError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import LoadedModel
from tests.support.tiny_models import tiny_eagle3_config


@pytest.fixture
def loaded(tiny_llama: LlamaForCausalLM) -> LoadedModel:
    return LoadedModel(copy.deepcopy(tiny_llama), Path(), "tiny", 64, 128, "the target's")


def build(loaded: LoadedModel, config: InTargetDrafterConfig) -> InTargetDrafter | None:
    decoder = TransformersDecoder(loaded.model, deterministic=False, max_context_tokens=128)
    settings = Config(target=TargetConfig(drafter=config), draft=DraftConfig(top_m=8))
    return build_in_target_drafter(settings, loaded, decoder)


@pytest.mark.parametrize(
    ("proposer", "lookup", "name"),
    [("none", "none", None), ("none", "ngram", "ngram"), ("eagle3", "none", "eagle3"), ("eagle3", "ngram", "eagle3")],
)
def test_the_configured_drafter(
    loaded: LoadedModel, tmp_path: Path, proposer: str, lookup: str, name: str | None
) -> None:
    if proposer == "eagle3":
        save_eagle3(Eagle3Head(tiny_eagle3_config(tokenizer_fingerprint="the target's")), tmp_path)
    model = str(tmp_path) if proposer == "eagle3" else ""
    drafter = build(loaded, InTargetDrafterConfig(proposer=proposer, lookup=lookup, model=model))  # type: ignore[arg-type]
    assert name == (None if drafter is None else drafter.name)
    assert isinstance(drafter, InTargetLookup) == (lookup != "none")
    if drafter is not None:
        assert (drafter.allocate(4) > 0) == (proposer == "eagle3")


def test_a_head_of_another_target(loaded: LoadedModel, tmp_path: Path) -> None:
    save_eagle3(Eagle3Head(tiny_eagle3_config(tokenizer_fingerprint="other")), tmp_path)
    with pytest.raises(ModelError, match="another tokenizer"):
        build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path)))


def test_no_head(loaded: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="is no folder of a draft head"):
        build(loaded, InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path / "none")))
