"""The header and metadata `authorization: Bearer SECRET`."""

from __future__ import annotations

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
