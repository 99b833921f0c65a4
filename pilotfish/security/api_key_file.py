"""The file of API keys."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from pilotfish.config.fields import STRICT
from pilotfish.config.yaml_file import UniqueKeyLoader
from pilotfish.errors import ConfigError
from pilotfish.security.api_key import ApiKey
from pilotfish.security.certificates import read_secret_file


@dataclass(frozen=True)
class _Content:
    __pydantic_config__ = STRICT

    keys: tuple[ApiKey, ...]


_ADAPTER = TypeAdapter(_Content)


def read_keys(path: str) -> tuple[ApiKey, ...]:
    """Raises ConfigError, which shows nothing of the content but names and keys of the wrong kind."""
    try:
        # A SafeLoader.
        content = yaml.load(read_secret_file(path, "API keys"), UniqueKeyLoader)
        if not isinstance(content, dict):
            raise ConfigError(f"{path} holds no API keys; `pilotfish keys create` writes such files")
        keys = _ADAPTER.validate_python(content).keys
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path} is not YAML" + (f" (line {mark.line + 1})" if mark else "")) from None
    except ValidationError as error:
        places = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"{path}: {places}; `pilotfish keys create` writes such files") from None
    for what, values in (("name", [key.name for key in keys]), ("sha256", [key.sha256 for key in keys])):
        if len(set(values)) != len(values):
            raise ConfigError(f"{path} has two keys of the same {what}")
    return keys


def write_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Replace the file at once, so that no reader sees half of it; only its owner may read it.

    Raises ConfigError when it cannot be written.
    """
    text = yaml.safe_dump({"keys": [dataclasses.asdict(key) for key in keys]}, sort_keys=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp's files are for their owner only.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
