"""The token that orchestrators show to replicas, and how calls show tokens and keys."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from pilotfish.errors import AuthenticationError, ConfigError
from pilotfish.security.certificates import read_secret_file
from pilotfish.security.watched_file import WatchedFiles

AUTHORIZATION_KEY = "authorization"
_SCHEME = "bearer "


def bearer_of(header: str) -> str:
    """The secret of an authorization header; empty if there is none of this scheme."""
    if header[: len(_SCHEME)].lower() != _SCHEME:
        return ""
    return header[len(_SCHEME) :].strip()


def bearer_header(secret: str) -> str:
    """The header that shows a secret."""
    return f"Bearer {secret}"


MIN_TOKEN_CHARACTERS = 32


class LinkToken:
    """The tokens of a file, one a line; the first is shown, all are taken."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError for a file that cannot be read or holds no good token."""
        self._watched = WatchedFiles((path,), lambda: _read(path), "tokens")

    @property
    def shown(self) -> str:
        """What the dialling side says."""
        return self._watched.current[0].decode("ascii")

    def check(self, presented: str) -> None:
        """Raises AuthenticationError unless it is one of the tokens."""
        given = presented.encode("utf-8", "replace")
        # All are compared, each in constant time: how long it takes reveals nothing.
        matches = [hmac.compare_digest(token, given) for token in self._watched.current]
        if not any(matches):
            reason = "shows no token" if not presented else "shows a token that is not ours"
            raise AuthenticationError(
                f"the peer {reason}: give orchestrators and replicas the same security.internal.token_file"
            )


def write_new_token(path: Path) -> None:
    """Make a token file that only its owner reads."""
    path.touch(mode=0o600)
    path.write_text(secrets.token_urlsafe(MIN_TOKEN_CHARACTERS) + "\n", encoding="ascii")


def _read(path: str) -> tuple[bytes, ...]:
    tokens = tuple(
        line.strip() for line in read_secret_file(path, "security.internal.token_file").splitlines() if line.strip()
    )
    if not tokens:
        raise ConfigError(f"{path} holds no token (security.internal.token_file)")
    for token in tokens:
        if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.decode("ascii").isprintable():
            raise ConfigError(
                f"{path} holds a token that is not {MIN_TOKEN_CHARACTERS} or more printable ASCII characters; make one "
                "with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
    return tokens
