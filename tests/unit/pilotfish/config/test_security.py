"""What a security section refuses, and that no configuration holds a secret."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from pilotfish.config import Config, load_config
from pilotfish.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("security.internal.certificate=a", "certificate, private_key and ca together"),
        ("security.internal.server_name=a", "server_name is the name in certificates"),
        ("security.public.certificate=a", "certificate and private_key together"),
        ("security.public.client_ca=a", "client_ca needs certificate"),
        ("security.public.max_header_bytes=10", "at least 4096"),
        ("security.public.request_read_timeout_s=0", "above 0"),
        ("security.public.max_connections=0", "at least 1"),
        ("security.internal.token=abc", "token"),
    ],
)
def test_what_cannot_be_secured_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, [override])


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
