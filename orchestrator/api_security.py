"""What the gRPC and the HTTP server have in common towards strangers: keys, certificates and limits."""

from __future__ import annotations

import grpc

from orchestrator.authenticator import Authenticator
from pilotfish.config import Config
from pilotfish.rpc.channel import public_server_options
from pilotfish.rpc.credentials import server_credentials
from pilotfish.security.certificates import CertificateFiles, CertificateSource

_MIN_MESSAGE_BYTES = 4 * 1024 * 1024


class ApiSecurity:
    """Made once, before anything listens."""

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
            # More than is taken: a prompt that is too long is told so in our words, not in gRPC's.
            max_message_bytes=max(4 * config.orchestrator.max_prompt_bytes, _MIN_MESSAGE_BYTES),
            max_metadata_bytes=security.max_header_bytes,
        )

    @property
    def grpc_credentials(self) -> grpc.ServerCredentials | None:
        """None: no TLS."""
        return None if self.certificates is None else server_credentials(self.certificates)
