"""What a security section refuses, and that no configuration holds a secret."""

import dataclasses
from collections.abc import Iterator

from pilotfish.config import Config


def test_secrets_are_named_by_their_files_only() -> None:
    """`pilotfish config` prints everything, and prints are kept."""
    secrets = [name for name in field_names(Config()) if any(word in name for word in ("password", "secret", "token"))]
    counts = ("tokens", "max_", "num_")
    assert [name for name in secrets if not name.endswith("_file") and not any(word in name for word in counts)] == []


def field_names(value: object) -> Iterator[str]:
    for each in dataclasses.fields(value):  # type: ignore[arg-type]
        yield each.name
        inner = getattr(value, each.name)
        if dataclasses.is_dataclass(inner):
            yield from field_names(inner)
