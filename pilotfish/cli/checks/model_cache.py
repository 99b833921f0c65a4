"""The model cache: whether it can be written, has room, and holds the configured models; whether heads are here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.config import Config
from pilotfish.config.shipped_heads import head_folder
from pilotfish.errors import ModelError, ModelNotFoundError
from pilotfish.models.store.adapter import Adapter
from pilotfish.models.store.catalogue import CatalogueModel, HubModel, LocalFolder, resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder

ELSEWHERE = "or set PILOTFISH_CACHE (cache_dir in the configuration) to another folder"
LITTLE_SPACE_BYTES = 500_000_000
"""Compiled kernels, logs and locks need a few; a model pull more."""


def check_model_cache(config: Config) -> Iterator[CheckFinding]:
    """The folder, then each model and head that the configuration names. Emulated engines load none."""
    root = Path(config.cache_dir).expanduser()
    models = sorted({config.target.model} | ({config.draft.model} if config.draft.num_replicas else set()))
    if config.emulation.is_on:
        models = []
    failure = _why_not_writable(root)
    if failure:
        yield CheckFinding(
            "model cache", Severity.PROBLEM, f"{root} is not writable: {failure}", f"make it so, {ELSEWHERE}"
        )
    else:
        yield _space(root, sum(_pull_bytes(name, root) for name in models))
    for name in models:
        yield _model(name, ModelCache(root))
    for name in config.heads:
        yield _head(name)
    if config.target.lora and not config.emulation.is_on:
        yield _adapter(config.target.lora)


def _space(root: Path, needed_bytes: int) -> CheckFinding:
    free = shutil.disk_usage(_existing(root)).free
    found = f"{root}, {free / 1e9:.1f} GB free"
    if free < needed_bytes:
        found += f", but the models still to be pulled need {needed_bytes / 1e9:.1f} GB"
        return CheckFinding("model cache", Severity.PROBLEM, found, f"free some, {ELSEWHERE}")
    if free < LITTLE_SPACE_BYTES:
        return CheckFinding("model cache", Severity.WARNING, found, f"free some, {ELSEWHERE}")
    return CheckFinding("model cache", Severity.OK, found)


def _model(name: str, cache: ModelCache) -> CheckFinding:
    try:
        folder = cached_folder(resolve(name), cache)
    except (ModelError, OSError) as error:
        return CheckFinding("model", Severity.PROBLEM, str(error), "`pilotfish models list` names those that there are")
    if folder is None:
        advice = f"`pilotfish up` pulls it, or now: pilotfish models pull {name}"
        return CheckFinding("model", Severity.WARNING, f"{name} is not in the cache yet", advice)
    return CheckFinding("model", Severity.OK, f"{name} in {folder}")


def _head(name: str) -> CheckFinding:
    """No problem where it is missing: with pools apart, another machine has it."""
    advice = "who drafts with it does not start on this machine: name its folder, with config.json and *.safetensors"
    try:
        folder = head_folder(name)
    except ModelNotFoundError as error:
        return CheckFinding("head", Severity.WARNING, str(error), advice)
    if not any(folder.glob("*.safetensors")):
        return CheckFinding("head", Severity.WARNING, f"{folder} has no *.safetensors (pickles are not read)", advice)
    return CheckFinding("head", Severity.OK, f"{name} in {folder}")


def _adapter(name: str) -> CheckFinding:
    try:
        source = resolve(name)
        if isinstance(source, HubModel):
            return CheckFinding("adapter", Severity.OK, f"{name} is merged into the target when it starts")
        folder = source.folder if isinstance(source, LocalFolder) else Path(name)
        Adapter.read(folder)
    except (ModelError, OSError) as error:
        return CheckFinding("adapter", Severity.PROBLEM, str(error), "name a LoRA adapter's folder in target.lora")
    return CheckFinding("adapter", Severity.OK, f"{folder} is merged into the target when it starts")


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
