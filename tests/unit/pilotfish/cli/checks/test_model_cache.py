"""The cache folder and the models in it."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.checks.model_cache import check_model_cache
from pilotfish.config import load_config

Usage = namedtuple("Usage", "total used free")


def check(cache: Path, *overrides: str) -> list[CheckFinding]:
    return list(check_model_cache(load_config(overrides=[f"cache_dir={cache}", *overrides])))


def test_a_folder_that_is_not_there_yet_is_looked_at_and_not_made(tmp_path: Path) -> None:
    cache, model, *_ = check(tmp_path / "a" / "b")
    assert cache.verdict is Severity.OK
    assert model.verdict is Severity.WARNING
    assert "pilotfish models pull smollm2-135m-instruct" in model.advice
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    cache, *_ = check(file)
    assert cache.verdict is Severity.PROBLEM
    assert "PILOTFISH_CACHE" in cache.advice


def test_too_little_room_for_what_is_still_to_be_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 10**6))
    assert check(tmp_path)[0].verdict is Severity.PROBLEM
    assert check(tmp_path, "emulation.profile=instant")[0].verdict is Severity.WARNING


def test_a_local_model_is_found_and_an_unknown_one_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    _, *models = check(tmp_path, f"target.model={tmp_path}", "draft.model=no such")
    assert sorted(model.verdict for model in models) == [Severity.OK, Severity.PROBLEM]


def test_a_head_that_is_not_here_is_told(tmp_path: Path) -> None:
    def found(*settings: str) -> CheckFinding:
        *_, head = check(tmp_path / "cache", *settings)
        assert head.check == "head"
        return head

    assert found().verdict is Severity.OK, "the one that comes with Pilotfish"
    for settings in (
        ("target.drafter.proposer=eagle3", f"target.drafter.model={tmp_path}"),
        ("draft.proposer=eagle3", f"draft.head={tmp_path}"),
    ):
        assert "hf download" in found(*settings).found
        (tmp_path / "config.json").touch()
        assert "no *.safetensors" in found(*settings).found
        (tmp_path / "model.safetensors").touch()
        assert found(*settings).verdict is Severity.OK
        (tmp_path / "model.safetensors").unlink()
        (tmp_path / "config.json").unlink()


def test_an_adapter_that_cannot_be_merged_is_found_before_a_start(tmp_path: Path) -> None:
    adapter = tmp_path / "style"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (adapter / "adapter_model.safetensors").touch()
    *_, found = check(tmp_path, f"target.lora={adapter}")
    assert (found.verdict, found.check) == (Severity.OK, "adapter")
    (adapter / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    *_, found = check(tmp_path, f"target.lora={adapter}")
    assert found.verdict is Severity.PROBLEM
    assert "peft_type IA3" in found.found
