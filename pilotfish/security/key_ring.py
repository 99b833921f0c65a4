"""Which API keys are good, as their file says now."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from pilotfish.errors import AuthenticationError
from pilotfish.security.allowance import Allowance
from pilotfish.security.api_key import ApiKey, digest_of
from pilotfish.security.api_key_file import read_keys
from pilotfish.security.watched_file import WatchedFiles


class KeyRing:
    """The API keys that are good now. Used from one event loop."""

    def __init__(self, path: str, sha256: Sequence[str] = ()) -> None:
        """path: the file of keys; empty: there is none. sha256: digests of keys without a limit.

        Raises ConfigError for a file that cannot be read, and for what is no SHA-256.
        """
        self._path = path
        self._fixed = tuple(ApiKey(name=f"key-{number}", sha256=digest) for number, digest in enumerate(sha256, 1))
        self._allowances: dict[str, Allowance] = {}
        """Allowances by the key's digest."""
        self._watched = WatchedFiles((path,) if path else (), self._take_up, "API keys")

    def allowance(self, secret: str) -> Allowance:
        """The allowance of this key. Raises AuthenticationError for no key and for one that is not good (any more)."""
        allowances = self._watched.current
        if not secret:
            raise AuthenticationError("an API key is needed: send it as `authorization: Bearer KEY`")
        digest = digest_of(secret)
        found = None
        # All are compared, each in constant time: how long it takes reveals nothing of the keys.
        for known, allowance in allowances.items():
            if hmac.compare_digest(known, digest):
                found = allowance
        if found is None:
            raise AuthenticationError("the API key is not known here, or not any more")
        return found

    def _take_up(self) -> dict[str, Allowance]:
        known, latest = self._allowances, {}
        for key in self._fixed + (read_keys(self._path) if self._path else ()):
            allowance = known.get(key.sha256) or Allowance(key)
            allowance.key = key
            latest[key.sha256] = allowance
        self._allowances = latest
        return latest
