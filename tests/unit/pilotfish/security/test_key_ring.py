"""Which keys are good now."""

import logging
from pathlib import Path

import pytest

from pilotfish.errors import AuthenticationError, ConfigError
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of
from pilotfish.security.api_key_file import write_keys
from pilotfish.security.key_ring import KeyRing

ANN = ApiKey(name="ann", sha256=digest_of("pf-a"))
BOB = ApiKey(name="bob", sha256=digest_of("pf-b"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys", [ANN, BOB])
    return tmp_path / "keys"


@pytest.mark.parametrize("secret", ["", "pf-", "pf-A", "pf-a ", ANN.sha256])
def test_others_are_refused_without_being_repeated(path: Path, secret: str) -> None:
    with pytest.raises(AuthenticationError) as refusal:
        KeyRing(str(path)).allowance(secret)
    assert not secret or secret not in str(refusal.value)


def test_a_changed_file_counts_at_once_and_keeps_what_is_used(path: Path) -> None:
    ring = KeyRing(str(path))
    with ring.allowance("pf-a").request():
        write_keys(path, [ApiKey(name="ann", sha256=ANN.sha256, limits=KeyLimits(max_concurrent_requests=9))])
        assert ring.allowance("pf-a").num_requests == 1
        assert ring.allowance("pf-a").key.limits.max_concurrent_requests == 9
        with pytest.raises(AuthenticationError, match="not any more"):
            ring.allowance("pf-b")


def test_keys_may_be_given_without_a_file_and_beside_one(path: Path) -> None:
    assert KeyRing("", [digest_of("pf-c")]).allowance("pf-c").key.name == "key-1"
    both = KeyRing(str(path), [digest_of("pf-c")])
    assert [both.allowance(secret).key.name for secret in ("pf-a", "pf-c")] == ["ann", "key-1"]
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        KeyRing("", ["pf-c"])


def test_a_bad_change_leaves_the_keys_from_before(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ring = KeyRing(str(path))
    path.write_text("nonsense: true")
    with caplog.at_level(logging.ERROR):
        assert ring.allowance("pf-a").key == ANN
    assert "stay in use" in caplog.text
