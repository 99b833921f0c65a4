"""Keys are random, and only their hash is kept."""

import hashlib

import pytest

from pilotfish.errors import ConfigError
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of, new_secret


def test_secrets_differ_and_hold_256_random_bits() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(secret.startswith("pf-") and len(secret) >= 3 + 43 for secret in secrets)


def test_the_digest_is_sha256_of_whatever_is_shown() -> None:
    assert digest_of("pf-x") == hashlib.sha256(b"pf-x").hexdigest()
    assert digest_of("\udcff") == hashlib.sha256(b"\xff").hexdigest()


@pytest.mark.parametrize("name", ["", " ann", "a\nb", "a" * 65, "-a"])
def test_names_are_fit_for_logs(name: str) -> None:
    with pytest.raises(ConfigError, match="no name"):
        ApiKey(name=name, sha256="0" * 64)


def test_limits_are_not_negative_and_hashes_are_hashes() -> None:
    with pytest.raises(ConfigError, match="tokens_per_min must be at least 0"):
        KeyLimits(tokens_per_min=-1)
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        ApiKey(name="ann", sha256="pf-secret")
