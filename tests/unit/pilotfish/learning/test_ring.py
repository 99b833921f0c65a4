"""What a ring keeps, for whom, and how long."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from pilotfish.features import Features
from pilotfish.learning.record import LearnedText, kind_of
from pilotfish.learning.ring import Ring

KEY, OTHER_KEY = bytes(range(32)), bytes(32)


def text(request_id: str, *, finished_at: float = 1000.0, num_tokens: int = 4) -> LearnedText:
    features = Features(0, num_tokens, bytes(range(8)) * num_tokens)
    return LearnedText(request_id, "kind", 2, tuple(range(num_tokens)), features, finished_at=finished_at)


def ring(folder: Path, *, key: bytes | None = None, max_bytes: int = 10_000) -> Ring:
    return Ring(folder / "ring", max_bytes=max_bytes, max_age_s=60, key=key)


def ids(kept: Ring) -> list[str]:
    return [each.request_id for _, each in kept.read()]


@pytest.mark.parametrize("key", [None, KEY])
def test_texts_come_back_oldest_first(tmp_path: Path, key: bytes | None) -> None:
    kept = ring(tmp_path, key=key)
    for at in (1002.0, 1001.0):
        kept.append(text(f"at-{at}", finished_at=at))
    assert [each for _, each in kept.read()] == [text(f"at-{at}", finished_at=at) for at in (1001.0, 1002.0)]


def test_encrypted_texts_are_not_found_on_the_disk_and_files_are_their_users_alone(tmp_path: Path) -> None:
    ring(tmp_path, key=KEY).append(text("a-request-id"))
    (path,) = (tmp_path / "ring").iterdir()
    content = path.read_bytes()
    assert b"a-request-id" not in content
    assert bytes(range(8)) not in content
    assert "a-request-id" not in path.name
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("written", "read", "reason"),
    [
        (KEY, OTHER_KEY, "another key than draft.learning.key_file"),
        (KEY, None, "draft.learning.key_file is not set"),
        (None, KEY, "it is not encrypted"),
    ],
)
def test_a_wrong_key_leaves_texts_out_and_says_why_once(
    tmp_path: Path, written: bytes | None, read: bytes | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    ring(tmp_path, key=written).append(text("first"))
    reader = ring(tmp_path, key=read)
    reader.append(text("second", finished_at=1001))
    assert ids(reader) == ["second"]
    assert ids(reader) == ["second"]
    (message,) = caplog.messages
    assert reason in message


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("damage", ["torn", "changed", "foreign", "empty"])
def test_damaged_files_are_left_out(
    tmp_path: Path, key: bytes | None, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = ring(tmp_path, key=key)
    kept.append(text("bad", finished_at=1000))
    kept.append(text("good", finished_at=1001))
    path = min((tmp_path / "ring").iterdir())
    content = path.read_bytes()
    changed = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    path.write_bytes({"torn": content[:-1], "changed": changed, "foreign": b"hello", "empty": b""}[damage])
    assert ids(kept) == ["good"]
    assert str(path) in caplog.text


def test_the_oldest_make_room(tmp_path: Path) -> None:
    kept = ring(tmp_path, max_bytes=1100)
    for number in range(10):
        kept.append(text(str(number), finished_at=1000 + number, num_tokens=20))
    assert sum(path.stat().st_size for path in (tmp_path / "ring").iterdir()) <= 1100
    assert ids(kept) == ["7", "8", "9"]


def test_not_every_text_has_all_files_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ring(tmp_path, max_bytes=40_000)
    looks = 0
    list_files = Ring.paths

    def counted(self: Ring) -> list[Path]:
        nonlocal looks
        looks += 1
        return list_files(self)

    monkeypatch.setattr(Ring, "paths", counted)
    for number in range(400):
        kept.append(text(str(number), finished_at=1000 + number / 100, num_tokens=20))
        assert sum(path.stat().st_size for path in (tmp_path / "ring").iterdir()) <= 40_000
    assert len(ids(kept)) > 100
    assert looks < 60


def test_a_writer_deletes_what_is_too_old_too(tmp_path: Path) -> None:
    kept = ring(tmp_path)
    for at in (1000, 1055, 1065):
        kept.append(text(str(at), finished_at=at))
    assert ids(kept) == ["1055", "1065"]


def test_what_is_too_old_is_deleted_also_what_a_killed_writer_left(tmp_path: Path) -> None:
    kept = ring(tmp_path)
    kept.append(text("old", finished_at=1000))
    kept.append(text("new", finished_at=1059))
    torn = tmp_path / "ring" / "1-2-3.partial"
    torn.touch()
    os.utime(torn, (1000, 1000))
    kept.prune(1061)
    assert ids(kept) == ["new"]
    kept.prune(2000)
    assert list((tmp_path / "ring").iterdir()) == []


def test_a_request_is_forgotten_without_the_key(tmp_path: Path) -> None:
    kept = ring(tmp_path, key=KEY)
    for request_id in ("a", "b", "a"):
        kept.append(text(request_id))
    assert ring(tmp_path).forget("a") == 2
    assert ids(kept) == ["b"]
    assert ring(tmp_path).forget("a") == 0


def test_what_comes_of_a_forgotten_request_later_is_not_kept(tmp_path: Path) -> None:
    kept = ring(tmp_path)
    assert ring(tmp_path).forget("a") == 0  # its answer has not come to its end
    for request_id in ("a", "b"):
        kept.append(text(request_id))
    assert ids(kept) == ["b"]
    (mark,) = (tmp_path / "ring").glob("*.forgotten")
    assert stat.S_IMODE(mark.stat().st_mode) == 0o600
    os.utime(mark, (1000, 1000))
    kept.prune(1000 + 23 * 3600)
    assert mark.exists()
    kept.prune(1000 + 25 * 3600)
    assert not mark.exists()


def test_used_texts_are_removed_and_may_be_gone_already(tmp_path: Path) -> None:
    kept = ring(tmp_path)
    kept.append(text("a"))
    paths = [path for path, _ in kept.read()]
    kept.remove(paths)
    kept.remove(paths)
    assert ids(kept) == []


def test_a_full_disk_drops_texts_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = ring(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        kept.append(text("a"))
        kept.append(text("b"))
    assert len(caplog.messages) == 1
    assert "No space left" in caplog.messages[0]
    assert "draft.learning.folder" in caplog.messages[0]
    kept.append(text("c"))
    assert ids(kept) == ["c"]


def test_a_folder_that_cannot_be_made_is_no_error_of_a_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ring").write_text("a file")
    kept = ring(tmp_path)
    with caplog.at_level(logging.WARNING):
        kept.append(text("a"))
    assert "no text is kept" in caplog.text
    assert ids(kept) == []


def test_a_kind_is_how_a_prompt_begins() -> None:
    system = list(range(100, 140))
    assert kind_of([*system, 1]) == kind_of([*system, 2, 3])
    assert kind_of(system) != kind_of(system[1:])
    assert kind_of([]) != kind_of([0])
