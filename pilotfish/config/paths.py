"""Which values are files and folders of this machine, and how they are named from anywhere else on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class PathMark:
    """In a field's annotation: what its text means."""

    kind: Literal["path", "name or path"]


PathText = Annotated[str, PathMark("path")]
"""A file or folder; empty: none."""
NameOrPath = Annotated[str, PathMark("name or path")]
"""A file or folder if there is one of this name, else the name of something that Pilotfish or a hub has."""


def with_absolute_paths(section: T, names: Collection[str]) -> T:
    """A frozen dataclass of the configuration, and those in it, with every path from the root: services under Ray run
    in folders of their own.

    names: what the name of a NameOrPath means before a file of that name does. Looks at this machine's files.
    """
    changes: dict[str, Any] = {}
    for name, annotation in get_type_hints(type(section), include_extras=True).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            changes[name] = with_absolute_paths(value, names)
        for mark in get_args(annotation):
            if isinstance(mark, PathMark) and value:
                changes[name] = _absolute(value, mark, names)
    return dataclasses.replace(section, **changes)  # type: ignore[type-var]


def _absolute(text: str, mark: PathMark, names: Collection[str]) -> str:
    path = Path(text).expanduser()
    if mark.kind == "name or path" and (text in names or not path.exists()):
        return text
    return str(path.absolute())
