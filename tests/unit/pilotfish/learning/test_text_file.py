"""The key of the texts."""

import base64
from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.learning.text_file import read_key


def test_a_key_is_32_bytes_or_their_base64(tmp_path: Path) -> None:
    key, path = bytes(range(32)), tmp_path / "key"
    path.write_bytes(key)
    assert read_key(path) == key
    path.write_bytes(base64.b64encode(key) + b"\n")
    assert read_key(path) == key


@pytest.mark.parametrize("content", [b"", b"secret", base64.b64encode(b"short"), b"\xff" * 31])
def test_other_keys_are_refused_without_showing_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="32 bytes") as caught:
        read_key(path)
    assert "secret" not in str(caught.value)


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"key_file .*/none cannot be read: No such file"):
        read_key(tmp_path / "none")
