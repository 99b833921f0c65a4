"""How orchestrators and replicas prove to each other that they belong together."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from pilotfish.config import InternalSecurityConfig
from pilotfish.errors import ConfigError
from pilotfish.rpc.channel import CHANNEL_OPTIONS, open_channel
from pilotfish.security.certificates import CertificateFiles, Certificates, CertificateSource
from pilotfish.security.hosts import is_loopback
from pilotfish.security.link_token import AUTHORIZATION_KEY, LinkToken, bearer_header, bearer_of


def server_credentials(source: CertificateSource) -> grpc.ServerCredentials:
    """Credentials of a listening server: each new connection gets the certificates of the moment.

    With a `ca`, clients must show certificates of it.
    """
    first = source.current
    latest = first

    def configuration() -> grpc.ServerCertificateConfiguration | None:
        # None: no change. Called by gRPC on its own thread before each handshake.
        nonlocal latest
        current = source.current
        if current is latest:
            return None
        latest = current
        return _configuration(current)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(first),
        configuration,  # type: ignore[arg-type]  # None is documented
        require_client_authentication=first.ca is not None,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificates.private_key, certificates.chain)], root_certificates=certificates.ca
    )


Metadata = tuple[tuple[str, str], ...]


class LinkSecurity:
    """Both ends of the links that one process has; reads its files once, and again when they change."""

    def __init__(self, config: InternalSecurityConfig) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._config = config
        self._source: CertificateSource | None = None
        if config.uses_tls:
            files = CertificateFiles(config.certificate, config.private_key, config.ca, section="security.internal")
            self._source = CertificateSource(files)
        self._token = LinkToken(config.token_file) if config.token_file else None

    # The dialling end.

    def open_channel(self, address: str) -> grpc.aio.Channel:
        """A channel to a replica at host:port; connects when it is first used."""
        if self._source is None:
            return open_channel(address)
        options: list[tuple[str, int | str]] = list(CHANNEL_OPTIONS)
        if self._config.server_name:
            options.append(("grpc.ssl_target_name_override", self._config.server_name))
        certificates = self._source.current
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.private_key, certificates.chain)
        return grpc.aio.secure_channel(address, credentials, options=options)

    @property
    def metadata(self) -> Metadata:
        """Metadata of each call."""
        return () if self._token is None else ((AUTHORIZATION_KEY, bearer_header(self._token.shown)),)

    # The listening end.

    @property
    def server_credentials(self) -> grpc.ServerCredentials | None:
        """None: no TLS."""
        return None if self._source is None else server_credentials(self._source)

    def check_call(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Raises AuthenticationError for a call from one who does not belong here."""
        if self._token is None:
            return
        shown = [str(value) for key, value in context.invocation_metadata() or () if key == AUTHORIZATION_KEY]
        self._token.check(bearer_of(shown[0]) if len(shown) == 1 else "")

    def check_host(self, host: str, setting: str) -> None:
        """Raises ConfigError for a listener that strangers could reach and would be served by."""
        if self._config.is_authenticated or self._config.allow_unauthenticated or is_loopback(host):
            return
        raise ConfigError(
            f"{setting} is {host}: whoever reaches it could verify and draft. Set security.internal.token_file (or "
            "certificate, private_key and ca) for the replicas and the orchestrator, or "
            "security.internal.allow_unauthenticated=true on a network of their own"
        )


OPEN_LINKS = LinkSecurity(InternalSecurityConfig())
"""Plain text, and nobody is asked who it is."""
