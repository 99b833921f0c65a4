"""API keys: random secrets of which only a hash is kept, with the limits of who holds them.

The hash is a plain SHA-256. Slow password hashes (bcrypt, argon2) make guessing a secret that a person thought up
expensive; a key is 256 random bits, which nobody guesses, and is checked with every request.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field

from pilotfish.config.fields import STRICT, require

KEY_PREFIX = "pf-"
"""Lets people and secret scanners see what it is."""
_RANDOM_BYTES = 32
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class KeyLimits:
    """What a key may use; 0: as much as there is."""

    __pydantic_config__ = STRICT

    max_concurrent_requests: int = 0
    """Served or waiting at once. Each answer of an HTTP request's `n` counts."""
    requests_per_min: int = 0
    tokens_per_min: int = 0
    """Prompt and output tokens together. A request is let in while some are left and may use more than are: the
    next ones wait until that is made good."""

    def __post_init__(self) -> None:
        for name in ("max_concurrent_requests", "requests_per_min", "tokens_per_min"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0 (0: no limit)")


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """What is kept of one key."""

    __pydantic_config__ = STRICT

    name: str
    """Name of its holder: shows in logs and messages, and is the client of the fair queue."""
    sha256: str
    """Digest of the key, in hexadecimal digits."""
    limits: KeyLimits = field(default_factory=KeyLimits)
    learn: bool = True
    """False: nothing of its requests is kept to train the drafter, where the operator has it learn."""

    def __post_init__(self) -> None:
        require(
            _NAME.fullmatch(self.name) is not None,
            f"{self.name!r} is no name of a key: letters, digits and any of . _ @ - are, up to 64 of them",
        )
        require(_SHA256.fullmatch(self.sha256) is not None, f"sha256 of key {self.name} must be 64 hexadecimal digits")


def new_secret() -> str:
    """A key to hand out. It is not kept anywhere."""
    return KEY_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(secret: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
