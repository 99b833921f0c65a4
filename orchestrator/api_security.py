"""What the gRPC and the HTTP server have in common towards strangers: keys, certificates and limits."""

from __future__ import annotations

import grpc

from orchestrator.requests.body_budget import max_message_bytes
from pilotfish.config import Config, PublicSecurityConfig
from pilotfish.rpc.channel import public_server_options
from pilotfish.rpc.link_security import server_credentials
from pilotfish.security.allowance import Allowance
from pilotfish.security.certificates import CertificateFiles, CertificateSource
from pilotfish.security.key_ring import KeyRing
from pilotfish.security.link_token import bearer_of

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


def host_of(peer: str) -> str:
    """The host in gRPC's name for a caller, such as `ipv4:10.0.0.7:51000`: each of its connections has its own port."""
    host, _, _ = peer.rpartition(":")
    return host


class ApiSecurity:
    """Keys, certificates and limits of both servers. Made once, before anything listens."""

    def __init__(self, config: Config) -> None:
        """Raises ConfigError for files that cannot be used."""
        security = config.security.public
        self.authenticator = Authenticator(security)
        self.certificates: CertificateSource | None = None
        if security.uses_tls:
            files = CertificateFiles(
                security.certificate, security.private_key, security.client_ca, section="security.public"
            )
            self.certificates = CertificateSource(files)
        self.grpc_options = public_server_options(
            security,
            max_message_bytes=max_message_bytes(config.orchestrator),
            # Twice as many as are served or queued: of such a burst the queue says what is too much.
            max_pending=2 * (config.orchestrator.max_concurrent_requests + config.orchestrator.max_queued_requests),
        )

    @property
    def grpc_credentials(self) -> grpc.ServerCredentials | None:
        """None: no TLS."""
        return None if self.certificates is None else server_credentials(self.certificates)
