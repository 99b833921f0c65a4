"""Which version serves, and what damage and kills leave of that."""

import os
import shutil
from pathlib import Path

import pytest

from pilotfish.errors import InvalidRequestError, ModelError
from pilotfish.learning.facts import VersionFacts
from pilotfish.learning.versions import Versions

CONFIGURED = Path("configured")


def add(versions: Versions, folder: Path, weights: bytes = b"weights") -> int:
    head = folder / "candidate"
    head.mkdir()
    (head / "model.safetensors").write_bytes(weights)
    (head / "config.json").write_text("{}")
    return versions.add(head, VersionFacts(parent=versions.serving(), created_at=5.0, verdict="better"))


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "learning", clock=lambda: 7.0)


def test_at_first_the_configured_head_serves(versions: Versions) -> None:
    assert versions.serving() == 0
    assert versions.head_folder(0, CONFIGURED) == CONFIGURED
    assert versions.history() == []
    assert versions.served_before() is None
    with pytest.raises(InvalidRequestError, match="the configured head serves"):
        versions.roll_back("worse")


def test_versions_are_added_promoted_and_rolled_back(versions: Versions, tmp_path: Path) -> None:
    first, second = add(versions, tmp_path, b"1"), add(versions, tmp_path, b"2")
    assert (first, second, versions.serving()) == (1, 2, 0)
    reader = Versions(tmp_path / "learning")
    for number in (first, second):
        versions.promote(number, f"better {number}")
        assert reader.serving() == number
    folder = reader.head_folder(second, CONFIGURED)
    assert (folder / "model.safetensors").read_bytes() == b"2"
    assert reader.facts(second).parent == 0
    assert versions.served_before() == 1
    assert versions.roll_back("worse", by_hand=True) == 1
    assert versions.roll_back("worse still") == 0
    assert reader.serving() == 0
    steps = [(change.from_version, change.to_version, change.reason, change.by_hand) for change in reader.history()]
    assert steps == [
        (0, 1, "better 1", False),
        (1, 2, "better 2", False),
        (2, 1, "worse", True),
        (1, 0, "worse still", False),
    ]
    assert {change.at for change in reader.history()} == {7.0}
    assert add(versions, tmp_path) == 3


def test_what_serves_already_is_promoted_without_a_change(versions: Versions, tmp_path: Path) -> None:
    versions.promote(add(versions, tmp_path), "better")
    versions.promote(1, "again")
    assert len(versions.history()) == 1
    versions.promote(0, "by hand", by_hand=True)
    assert versions.serving() == 0
    assert versions.roll_back("after all") == 1


def test_what_served_before_passes_over_versions_that_are_gone(versions: Versions, tmp_path: Path) -> None:
    for _ in range(3):
        versions.promote(add(versions, tmp_path), "better")
    shutil.rmtree(tmp_path / "learning" / "versions" / "2")
    assert versions.served_before() == 1
    shutil.rmtree(tmp_path / "learning" / "versions" / "1")
    assert versions.served_before() == 0
    assert versions.roll_back("worse") == 0


def test_no_version_of_that_number(versions: Versions) -> None:
    with pytest.raises(InvalidRequestError, match="no version 4: `pilotfish drafter list`"):
        versions.promote(4, "by hand")


def test_a_damaged_version_is_never_served(versions: Versions, tmp_path: Path) -> None:
    number = add(versions, tmp_path)
    (versions.head_folder(number, CONFIGURED) / "model.safetensors").write_bytes(b"wEights")
    for use in (lambda: versions.head_folder(number, CONFIGURED), lambda: versions.promote(number, "better")):
        with pytest.raises(ModelError, match=r"versions/1 is damaged \(model.safetensors is not as it was written\)"):
            use()
    (tmp_path / "learning" / "versions" / "1" / "version.json").write_text("{")
    with pytest.raises(ModelError, match=r"is damaged \(version.json"):
        versions.facts(number)
    assert versions.serving() == 0


def test_a_damaged_serving_file_changes_nothing_for_who_serves(
    versions: Versions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    versions.promote(add(versions, tmp_path), "better")
    assert versions.serving() == 1
    path = tmp_path / "learning" / "serving.json"
    path.write_text('{"served": ')
    assert versions.serving() == 1
    assert versions.serving() == 1
    (message,) = caplog.messages
    assert "delete it" in message
    with pytest.raises(ModelError, match=r"serving.json cannot be read"):
        versions.promote(1, "better")
    path.unlink()
    assert versions.serving() == 0


def test_a_kill_while_a_version_is_written_leaves_the_one_that_serves(
    versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.promote(add(versions, tmp_path), "better")

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", kill)
        with pytest.raises(KeyboardInterrupt):
            add(versions, tmp_path)
        with pytest.raises(KeyboardInterrupt):
            versions.roll_back("worse")
    reader = Versions(tmp_path / "learning")
    assert (reader.serving(), reader.numbers()) == (1, [1])


def test_the_newest_versions_are_kept_and_those_that_serve(versions: Versions, tmp_path: Path) -> None:
    versions.promote(add(versions, tmp_path), "better")
    versions.promote(add(versions, tmp_path), "better")
    for _ in range(6):
        add(versions, tmp_path)
    versions.keep(2)
    assert versions.numbers() == [1, 2, 7, 8]
    assert versions.roll_back("worse") == 1


def test_what_a_deleted_version_learned_from_is_known_as_long_as_others_come_from_it(
    versions: Versions, tmp_path: Path
) -> None:
    for _ in range(4):
        versions.promote(add(versions, tmp_path), "better")
    not_promoted = add(versions, tmp_path)
    versions.keep(2)
    assert versions.numbers() == [3, 4, not_promoted]
    assert list(versions.lineage(4)) == [4, 3, 2, 1]
    assert versions.lineage(4)[1].parent == 0
    versions.promote(0, "by hand", by_hand=True)
    for _ in range(2):
        versions.promote(add(versions, tmp_path), "better")
    versions.keep(1)
    assert versions.numbers() == [6, 7]
    assert list(versions.lineage(7)) == [7, 6]
    assert list((tmp_path / "learning" / "versions").glob("*.json")) == []


def test_a_version_that_is_gone_is_passed_over_by_a_roll_back(versions: Versions, tmp_path: Path) -> None:
    for _ in range(2):
        versions.promote(add(versions, tmp_path), "better")
    for path in (tmp_path / "learning" / "versions" / "1").iterdir():
        path.unlink()
    (tmp_path / "learning" / "versions" / "1").rmdir()
    assert versions.roll_back("worse") == 0
