"""Which values are files and folders of this machine, and how they are named from anywhere else on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

T = TypeVar("T")

NamedKind = Literal["model", "head", "profile"]
"""What Pilotfish or a hub has by names, and a user in files and folders."""


@dataclasses.dataclass(frozen=True, slots=True)
class PathMark:
    """The mark in a field's annotation that says what its text means."""

    kind: Literal["path"] | NamedKind
    """`path`: always a file or folder. Else the name of such a thing, or its file or folder."""


PathText = Annotated[str, PathMark("path")]
"""A file or folder; empty: none."""
ModelOrPath = Annotated[str, PathMark("model")]
HeadOrPath = Annotated[str, PathMark("head")]
ProfileOrPath = Annotated[str, PathMark("profile")]


def with_absolute_paths(section: T, is_path: Mapping[NamedKind, Callable[[str], bool]]) -> T:
    """A frozen dataclass of the configuration, and those in it, with every path from the root: services under Ray run
    in folders of their own.

    is_path: whether whoever reads such a text takes it for a file or folder of this machine, and not for a name.
    """
    changes: dict[str, Any] = {}
    for name, annotation in get_type_hints(type(section), include_extras=True).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            changes[name] = with_absolute_paths(value, is_path)
        for mark in get_args(annotation):
            if isinstance(mark, PathMark) and value and (mark.kind == "path" or is_path[mark.kind](value)):
                changes[name] = str(Path(value).expanduser().absolute())
    return dataclasses.replace(section, **changes)  # type: ignore[type-var]
