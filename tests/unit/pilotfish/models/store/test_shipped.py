"""Heads that come with Pilotfish are found by name, others by their path."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.errors import ModelNotFoundError
from pilotfish.models.store import shipped
from pilotfish.models.store.shipped import head_folder


@pytest.fixture
def shipped_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "share" / "a-head"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(shipped, "_FOLDERS", (tmp_path / "checkout", tmp_path / "share"))
    return folder


def test_by_name(shipped_head: Path) -> None:
    assert head_folder("a-head") == shipped_head


def test_by_path(shipped_head: Path) -> None:
    assert head_folder(str(shipped_head)) == shipped_head


def test_what_there_is_is_named(shipped_head: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"'b-head' is no folder of a draft head; .*: a-head"):
        head_folder("b-head")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFoundError, match="is no folder of a draft head"):
        head_folder(str(tmp_path / "empty"))


def test_the_checkout_and_the_wheel_are_looked_in() -> None:
    repository = Path(__file__).resolve().parents[5]
    assert shipped._FOLDERS[0] == repository / "models"
    assert shipped._FOLDERS[1].parts[-3:] == ("share", "pilotfish", "models")
