"""The state folder of training for one target: what a killed run goes on from.

target.json              whose state this is
features/DATA/           shards, by the data they were extracted from or the prompts that are answered
runs/METHOD-SETTINGS/    checkpoint and curve
lock                     held by the one run at work
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pilotfish.errors import InvalidRequestError, ResourceExhaustedError
from pilotfish.training.data.conversations import write_json_atomically
from pilotfish.training.request import TrainingRequest

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_SHAPE = ("seed", "batch_tokens", "draft_vocab_size", "num_depths", "num_layers", "learning_rate")
"""Fields of a request that a checkpoint depends on; its length may change from run to run."""


@dataclass(frozen=True)
class TargetIdentity:
    """What state can be shared by."""

    model_id: str
    tokenizer_fingerprint: str
    config_sha256: str
    """Digest of the target's config.json."""


class Workspace:
    """Paths below one folder, and the right to use them."""

    def __init__(self, root: Path, identity: TargetIdentity) -> None:
        """Raises: InvalidRequestError when the folder belongs to another target."""
        self.root = root
        manifest = root / "target.json"
        if manifest.is_file() and json.loads(manifest.read_bytes()) != asdict(identity):
            raise InvalidRequestError(
                f"{root} holds the state of training for another target: choose another --work folder or delete it"
            )
        root.mkdir(parents=True, exist_ok=True)
        write_json_atomically(manifest, asdict(identity))

    def features(self, request: TrainingRequest) -> Path:
        """Folder by the content of the data or prompt files; what is synthesised, which grows, has one for itself."""
        files = _digest(path.read_bytes() for path in request.data or request.prompts)
        if request.data:
            # One that runs may have other weights: rounded ones, or those of another machine.
            return self.root / "features" / (f"served-{files}" if request.target_address else files)
        return self.root / "features" / (f"synthesised-{files}" if request.prompts else "synthesised")

    def run(self, request: TrainingRequest) -> Path:
        """Folder by the method and what a checkpoint of it depends on."""
        shape = {name: getattr(request, name) for name in _SHAPE}
        if request.start_from is not None:
            shape["start_from"] = str(request.start_from.absolute())
        if request.exit_layer:
            shape["exit_layer"] = request.exit_layer
        data = self.features(request).name
        return self.root / "runs" / f"{request.method}-{_digest([json.dumps([shape, data]).encode()])}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises: InvalidRequestError when another run is at work; ResourceExhaustedError when the disk fills up."""
        try:
            with FileLock(self.root / "lock", timeout=0):
                yield
        except Timeout:
            raise InvalidRequestError(f"another run is training in {self.root}: wait for it or choose --work") from None
        except OSError as error:
            if error.errno not in _NO_SPACE and "No space left" not in str(error):
                raise
            raise ResourceExhaustedError(
                f"the disk is full ({error}). What was done is kept in {self.root}: "
                "free some space and run the same command again"
            ) from error


def require_space(folder: Path, num_bytes: int) -> None:
    """Raise ResourceExhaustedError unless the folder's disk has room for num_bytes."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < num_bytes:
        raise ResourceExhaustedError(
            f"training needs about {num_bytes / 1e9:.1f} GB in {folder}; {free_bytes / 1e9:.1f} GB are free: "
            "choose another --work folder or fewer --tokens"
        )


def require_new(out: Path) -> None:
    """Raise InvalidRequestError unless a folder can be made there."""
    if out.exists():
        raise InvalidRequestError(f"{out} exists already: choose another --out or remove it")
    parent = out.absolute().parent
    if not parent.is_dir():
        raise InvalidRequestError(f"cannot make {out}: there is no folder {parent}")


def _digest(parts: Iterator[bytes] | Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]
