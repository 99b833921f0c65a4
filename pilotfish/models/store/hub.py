"""Models from the Hugging Face hub, safetensors only. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is its HTTP library's
    GatedRepoError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionResolutionError,
    XetDownloadError,
)
from huggingface_hub.utils.tqdm import tqdm

from pilotfish.errors import ModelDownloadError, ModelNotFoundError
from pilotfish.models.store.progress import ProgressCallback, PullProgress, PullStage

_WEIGHTS = "*.safetensors"
_TEXTS = ["*.json", "*.jinja"]
_PATTERNS = [_WEIGHTS, *_TEXTS]
"""Files that are downloaded: no pickles, no code."""


Snapshotter = Callable[[str, Path, ProgressCallback], Path]
"""Brings a repository into a cache folder, resuming, and returns its folder there.

Raises ModelNotFoundError, ModelDownloadError, OSError.
"""


def _download(name: str, cache_dir: Path, progress: ProgressCallback, patterns: list[str]) -> Path:
    progress(PullProgress(PullStage.DOWNLOAD))
    repo_id, _, revision = name.partition("@")
    try:
        folder = huggingface_hub.snapshot_download(
            repo_id,
            revision=revision or None,
            cache_dir=cache_dir,
            allow_patterns=patterns,
            tqdm_class=_reporting_bar(progress),
        )
    except GatedRepoError as error:
        raise ModelDownloadError(
            f"{name} is gated: accept its terms on its hub page and log in with `hf auth login`"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFoundError(f"the hub has no model {name!r}, or it is private: `hf auth login`") from error
    except (HTTPError, XetDownloadError, RevisionResolutionError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the network's
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelDownloadError(f"download of {name} failed: {reason}. Run it again: what came is kept") from error
    return Path(folder)


snapshot: Snapshotter = partial(_download, patterns=_PATTERNS)
"""The snapshot function of huggingface_hub, with its resume, its token and its offline mode."""
snapshot_without_weights: Snapshotter = partial(_download, patterns=_TEXTS)
"""Configuration and tokenizer alone: some megabytes instead of up to hundreds of gigabytes."""


def cached_snapshot(name: str, cache_dir: Path) -> Path | None:
    """The repository's folder in cache_dir, if it is there with weights; without network."""
    repo_id, _, revision = name.partition("@")
    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                repo_id, revision=revision or None, cache_dir=cache_dir, allow_patterns=_PATTERNS, local_files_only=True
            )
        )
    except LocalEntryNotFoundError:
        return None
    return folder if any(folder.glob(_WEIGHTS)) else None


def _reporting_bar(progress: ProgressCallback) -> type[tqdm]:
    """A tqdm class that draws nothing and reports the bytes of the whole download instead."""

    class ReportingBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            # huggingface_hub opens several bars; the one of this name counts the bytes that are on disk.
            self._counts_bytes = options.get("name") == "huggingface_hub.snapshot_download"
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]
            self.total: float | None = options.get("total")

        def update(self, n: float | None = 1) -> bool | None:
            self.n += n or 0
            if self._counts_bytes:
                progress(PullProgress(PullStage.DOWNLOAD, int(self.n), int(self.total or 0)))
            return None

    return ReportingBar
