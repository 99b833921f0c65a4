"""The file of keys: what is written is read, what is wrong is named, and nothing secret is shown."""

import stat
from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of
from pilotfish.security.api_key_file import read_keys, write_keys

ANN = ApiKey(name="ann", sha256=digest_of("pf-a"), limits=KeyLimits(requests_per_min=6))
BOB = ApiKey(name="bob", sha256=digest_of("pf-b"))


def test_keys_survive_the_file_which_is_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys.yaml"
    write_keys(path, [ANN, BOB])
    assert read_keys(str(path)) == (ANN, BOB)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_keys(path, [BOB])
    assert read_keys(str(path)) == (BOB,)
    assert [each.name for each in path.parent.iterdir()] == ["keys.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keys: [", "not YAML"),
        ("", "holds no API keys; `pilotfish keys create`"),
        ("keys: []\nkeys: []", "line 2"),
        ("[" * 3000, "not YAML"),
        ("keys: 3", "keys"),
        ("keys: [{name: ann}]", "sha256"),
        (f"keys: [{{name: ann, sha256: {ANN.sha256}, limit: 3}}]", "limit"),
        ("keys: [{name: ann, sha256: pf-oops}]", "64 hexadecimal digits"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as refusal:
        read_keys(str(path))
    assert "pf-oops" not in str(refusal.value)


def test_two_keys_of_one_name_or_hash_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    write_keys(path, [ANN, ApiKey(name="ann", sha256=BOB.sha256)])
    with pytest.raises(ConfigError, match="same name"):
        read_keys(str(path))
    write_keys(path, [ANN, ApiKey(name="bob", sha256=ANN.sha256)])
    with pytest.raises(ConfigError, match="same sha256"):
        read_keys(str(path))
