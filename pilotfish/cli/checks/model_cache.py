"""The model cache: whether it can be written, has room, and holds the configured models."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pilotfish.cli.checks.finding import Finding, Severity
from pilotfish.config import Config
from pilotfish.errors import ModelError
from pilotfish.models.store.adapter import Adapter
from pilotfish.models.store.catalogue import CatalogueModel, HubModel, LocalFolder, resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder

ELSEWHERE = "or set PILOTFISH_CACHE (cache_dir in the configuration) to another folder"
LITTLE_SPACE_BYTES = 500_000_000
"""Compiled kernels, logs and locks need a few; a model pull more."""


def check_model_cache(config: Config) -> Iterator[Finding]:
    """The folder, then each model that the configuration names. Emulated engines load none."""
    root = Path(config.cache_dir).expanduser()
    models = sorted({config.target.model} | ({config.draft.model} if config.draft.num_replicas else set()))
    if config.emulation.is_on:
        models = []
    failure = _why_not_writable(root)
    if failure:
        yield Finding("model cache", Severity.PROBLEM, f"{root} is not writable: {failure}", f"make it so, {ELSEWHERE}")
    else:
        yield _space(root, sum(_pull_bytes(name, root) for name in models))
    for name in models:
        yield _model(name, ModelCache(root))
    if config.target.lora and not config.emulation.is_on:
        yield _adapter(config.target.lora)


def _space(root: Path, needed_bytes: int) -> Finding:
    free = shutil.disk_usage(_existing(root)).free
    found = f"{root}, {free / 1e9:.1f} GB free"
    if free < needed_bytes:
        found += f", but the models still to be pulled need {needed_bytes / 1e9:.1f} GB"
        return Finding("model cache", Severity.PROBLEM, found, f"free some, {ELSEWHERE}")
    if free < LITTLE_SPACE_BYTES:
        return Finding("model cache", Severity.WARNING, found, f"free some, {ELSEWHERE}")
    return Finding("model cache", Severity.OK, found)


def _model(name: str, cache: ModelCache) -> Finding:
    try:
        folder = cached_folder(resolve(name), cache)
    except (ModelError, OSError) as error:
        return Finding("model", Severity.PROBLEM, str(error), "`pilotfish models list` names those that there are")
    if folder is None:
        advice = f"`pilotfish up` pulls it, or now: pilotfish models pull {name}"
        return Finding("model", Severity.WARNING, f"{name} is not in the cache yet", advice)
    return Finding("model", Severity.OK, f"{name} in {folder}")


def _adapter(name: str) -> Finding:
    try:
        source = resolve(name)
        if isinstance(source, HubModel):
            return Finding("adapter", Severity.OK, f"{name} is merged into the target when it starts")
        folder = source.folder if isinstance(source, LocalFolder) else Path(name)
        Adapter.read(folder)
    except (ModelError, OSError) as error:
        return Finding("adapter", Severity.PROBLEM, str(error), "name a LoRA adapter's folder in target.lora")
    return Finding("adapter", Severity.OK, f"{folder} is merged into the target when it starts")


def _pull_bytes(name: str, root: Path) -> int:
    """What a pull would need at its widest moment; 0 where nothing is to be pulled or nobody knows."""
    try:
        source = resolve(name)
    except ModelError:
        return 0
    wanted = isinstance(source, CatalogueModel) and not ModelCache(root).is_complete(name)
    return source.peak_bytes if wanted and isinstance(source, CatalogueModel) else 0


def _why_not_writable(root: Path) -> str:
    """Tries it, where the folder is or would be made: permissions alone do not show a read-only file system."""
    try:
        with tempfile.TemporaryFile(dir=_existing(root)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _existing(path: Path) -> Path:
    """The path itself, or the first of its parents that is there."""
    return next((folder for folder in (path, *path.absolute().parents) if folder.exists()), path)
