"""`pilotfish profile` writes a file that loads as a profile. The engine is one whose steps take no time."""

import json
from pathlib import Path
from unittest.mock import ANY

import pytest
from typer.testing import CliRunner

from pilotfish.cli.commands import profile as command
from pilotfish.cli.main import app
from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import MeasuredCost, RooflineCost, load_profile
from pilotfish.engine.process import factory
from pilotfish.types import Limits, ModelInfo

runner = CliRunner()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Roles of the engines that were built."""
    roles = []

    def build_engine(_config: object, role: str) -> EmulatedCore:
        roles.append(role)
        model = ModelInfo(model_id="m", tokenizer_fingerprint="", vocab_size=256, max_context_tokens=256)
        return EmulatedCore(model, Limits(max_draft_tokens=8, max_sequences=4), HashLanguageModel())

    monkeypatch.setattr(factory, "build_engine", build_engine)
    monkeypatch.setattr(command, "pull_with_progress", lambda *_: None)
    return roles


def test_both_roles_are_measured(built: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    answer = runner.invoke(app, ["profile", "--quick", "--out", str(path), "--set", "draft.proposer=model"])
    assert answer.exit_code == 0, answer.output
    assert built == ["target", "draft"]
    profile = load_profile(str(path))
    assert profile.name == "mine"
    assert isinstance(profile.target, MeasuredCost)
    assert isinstance(profile.draft, MeasuredCost)
    assert "measured" in profile.description


def test_a_lookup_is_free_and_loads_no_engine(built: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    answer = runner.invoke(app, ["profile", "--quick", "--out", str(path), "--json"])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout) == {"file": str(path), "decode_ms": ANY, "draft_ms": 0.0}
    assert built == ["target"]
    assert load_profile(str(path)).draft == RooflineCost(weights_s=0.0, token_s=0.0)


def test_a_head_without_its_target_is_refused_before_anything_is_loaded(built: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    answer = runner.invoke(app, ["profile", "--out", str(path), "--set", "draft.proposer=eagle3"])
    assert answer.exit_code == 1
    assert "--role target" in answer.output
    assert not built
    assert not path.exists()
