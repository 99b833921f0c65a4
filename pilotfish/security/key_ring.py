"""Which API keys are good, as their file says now."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Sequence

from pilotfish.errors import AuthenticationError, ConfigError
from pilotfish.security.allowance import Allowance
from pilotfish.security.api_key import ApiKey, digest_of
from pilotfish.security.api_key_file import read_keys
from pilotfish.security.watched_file import WatchedFiles

_log = logging.getLogger(__name__)


class KeyRing:
    """Used from one event loop."""

    def __init__(self, path: str, sha256: Sequence[str] = ()) -> None:
        """path: empty: there is no file. sha256: of keys without a limit.

        Raises ConfigError for a file that cannot be read, and for what is no SHA-256.
        """
        self._path = path
        self._fixed = tuple(ApiKey(name=f"key-{number}", sha256=digest) for number, digest in enumerate(sha256, 1))
        self._watch = WatchedFiles((path,) if path else ())
        self._watch.changed()
        self._allowances: dict[str, Allowance] = {}
        """By the key's digest."""
        self._take_up()

    def allowance(self, secret: str) -> Allowance:
        """Of who shows this key. Raises AuthenticationError for no key and for one that is not good (any more)."""
        self._refresh()
        if not secret:
            raise AuthenticationError("an API key is needed: send it as `authorization: Bearer KEY`")
        digest = digest_of(secret)
        found = None
        # All are compared, each in constant time: how long it takes tells nothing of the keys.
        for known, allowance in self._allowances.items():
            if hmac.compare_digest(known, digest):
                found = allowance
        if found is None:
            raise AuthenticationError("the API key is not known here, or not any more")
        return found

    def _refresh(self) -> None:
        if not self._watch.changed():
            return
        try:
            self._take_up()
        except ConfigError as error:
            _log.error("%s; the API keys from before stay in use", error)
        else:
            _log.info("read the API keys anew: %d", len(self._allowances))

    def _take_up(self) -> None:
        known, latest = self._allowances, {}
        for key in self._fixed + (read_keys(self._path) if self._path else ()):
            allowance = known.get(key.sha256) or Allowance(key)
            allowance.key = key
            latest[key.sha256] = allowance
        self._allowances = latest
