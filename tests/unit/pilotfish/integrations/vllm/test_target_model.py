"""What is known of vLLM's model."""

import sys
import types
from types import SimpleNamespace

import pytest

from pilotfish.errors import ModelNotFoundError
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint


def target(tokenizer: str) -> TargetModel:
    model_config = SimpleNamespace(
        model="somebody/model", tokenizer=tokenizer, tokenizer_revision="main", get_vocab_size=lambda: 100
    )
    speculative_config = SimpleNamespace(num_speculative_tokens=4)
    return TargetModel.of(SimpleNamespace(model_config=model_config, speculative_config=speculative_config))


@pytest.fixture
def hub(monkeypatch, tokenizer_folder):
    """A hub's cache that has the tokenizer of somebody/model."""
    module = types.ModuleType("huggingface_hub")

    def find(repo: str, name: str, revision: str | None) -> str | None:
        return str(tokenizer_folder / name) if (repo, revision) == ("somebody/model", "main") else None

    module.try_to_load_from_cache = find  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def test_a_folders_tokenizer_is_read_there(tokenizer_folder) -> None:
    assert target(str(tokenizer_folder)).fingerprint("") == tokenizer_fingerprint(tokenizer_folder)


def test_that_of_a_hubs_model_is_in_the_cache(hub, tokenizer_folder) -> None:
    assert target("somebody/model").fingerprint("") == tokenizer_fingerprint(tokenizer_folder)


def test_one_that_is_nowhere_is_told_with_the_way_out(hub) -> None:
    with pytest.raises(ModelNotFoundError, match="check_tokenizer"):
        target("somebody/else").fingerprint("")
