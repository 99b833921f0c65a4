from fnmatch import fnmatch
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RevisionResolutionError

from pilotfish.errors import ModelDownloadError, ModelNotFoundError
from pilotfish.models.store import hub
from pilotfish.models.store.progress import PullProgress, PullStage, ignore_progress


def test_nothing_cached(tmp_path: Path) -> None:
    assert hub.cached_snapshot("org/name", tmp_path) is None


def test_cached_snapshot_is_found_without_network(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    folder = repository / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    assert hub.cached_snapshot("org/name", tmp_path) is None, "a tokenizer without weights is no model"
    (folder / "model.safetensors").touch()
    assert hub.cached_snapshot("org/name", tmp_path) == folder


def test_a_revision_is_another_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models--org--name" / "snapshots" / ("b" * 40)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    assert hub.cached_snapshot(f"org/name@{'b' * 40}", tmp_path) == folder
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda repo_id, revision, **_: asked.append((repo_id, revision)) or str(tmp_path),
    )
    hub.snapshot("org/name@v1.2", tmp_path, ignore_progress)
    assert asked == [("org/name", "v1.2")]


def test_a_snapshot_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo_id: str, *, allow_patterns: list[str], **options: object) -> str:
        assert not any(fnmatch("model-00001-of-00030.safetensors", pattern) for pattern in allow_patterns)
        assert any(fnmatch("tokenizer.json", pattern) for pattern in allow_patterns)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert hub.snapshot_without_weights("org/name", tmp_path, ignore_progress) == tmp_path / "snapshot"


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (LocalEntryNotFoundError("no network\nmore"), ModelDownloadError, "org/name failed: no network. Run it again"),
        (RevisionResolutionError(""), ModelDownloadError, "RevisionResolutionError"),
        (OSError(28, "No space left on device"), OSError, "No space"),
    ],
)
def test_failures_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception], message: str
) -> None:
    def fail(*args: object, **options: object) -> str:
        raise raised

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(expected, match=message):
        hub.snapshot("org/name", tmp_path, ignore_progress)


def test_invalid_repo_id(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="org/na--me"):
        hub.snapshot("org/na--me", tmp_path, ignore_progress)


def test_only_safe_files_are_asked_for_and_bytes_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo_id: str, *, allow_patterns: list[str], tqdm_class: type, **options: object) -> str:
        assert not any(pattern.endswith((".bin", ".py", ".pt", "*")) for pattern in allow_patterns)
        files = tqdm_class(total=3, name=None, desc="Fetching 3 files")
        data = tqdm_class(total=0, name="huggingface_hub.snapshot_download", disable=None, unit="B")
        data.total = 100
        files.update(1)
        data.update(40)
        data.update(60)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    reports: list[PullProgress] = []
    assert hub.snapshot("org/name", tmp_path, reports.append) == tmp_path / "snapshot"
    assert reports[1:] == [PullProgress(PullStage.DOWNLOAD, 40, 100), PullProgress(PullStage.DOWNLOAD, 100, 100)]
