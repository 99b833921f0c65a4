"""Who may use the public API, whatever protocol is spoken."""

from __future__ import annotations

from pilotfish.config import PublicSecurityConfig
from pilotfish.security.allowance import Allowance
from pilotfish.security.bearer import bearer_of
from pilotfish.security.key_ring import KeyRing

MAX_CLIENT_ID_CHARACTERS = 256


class Authenticator:
    """Knows the API keys, where there are any."""

    def __init__(self, config: PublicSecurityConfig) -> None:
        """Raises ConfigError for a file of keys that cannot be read."""
        self._ring = KeyRing(config.api_keys_file, config.api_key_sha256) if config.needs_api_key else None

    @property
    def asks_for_keys(self) -> bool:
        return self._ring is not None

    def allowance(self, authorization: str) -> Allowance | None:
        """What the sender of this authorization header may use; None: there are no keys, anybody may use anything.

        Raises AuthenticationError.
        """
        return None if self._ring is None else self._ring.allowance(bearer_of(authorization))


def client_id_of(allowance: Allowance | None, claimed: str, host: str) -> str:
    """The fair queue's notion of the client: who has a key is known by it, everybody else by what they claim, else by
    where they are."""
    if allowance is not None:
        return f"key {allowance.key.name}"
    return claimed[:MAX_CLIENT_ID_CHARACTERS] or host
