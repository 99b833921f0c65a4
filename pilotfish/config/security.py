"""Configuration of who may talk to what, and how that is kept secret.

Everything secret lives in files that are named here: a configuration can be printed, mounted and committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from pilotfish.config.fields import STRICT, require
from pilotfish.config.paths import PathText


@dataclass(frozen=True, kw_only=True)
class InternalSecurityConfig:
    """Links between orchestrators and replicas; the same on all sides. Use certificates (mutual TLS), a token, or both.

    Files are reloaded when they change; open links stay open.
    """

    __pydantic_config__ = STRICT

    certificate: PathText = ""
    """PEM file: certificate with its issuers. Empty: no TLS."""
    private_key: PathText = ""
    """PEM file: the certificate's key, without a pass phrase."""
    ca: PathText = ""
    """PEM file: the authority of all link certificates, and of nothing else: its certificates grant access."""
    server_name: str = ""
    """Name in every replica's certificate. Empty: the host dialled, an IP address under Ray."""
    token_file: PathText = ""
    """File with random tokens of at least 32 characters, one a line. Replicas accept all, orchestrators send the
    first."""
    allow_unauthenticated: bool = False
    """Allow replicas to listen beyond loopback without certificate or token. Only for private networks."""

    def __post_init__(self) -> None:
        given = [bool(self.certificate), bool(self.private_key), bool(self.ca)]
        require(
            all(given) or not any(given),
            "security.internal needs certificate, private_key and ca together: the links' TLS is always mutual",
        )
        require(
            self.uses_tls or not self.server_name,
            "security.internal.server_name is the name in certificates; it needs certificate, private_key and ca",
        )

    @property
    def uses_tls(self) -> bool:
        return bool(self.certificate)

    @property
    def is_authenticated(self) -> bool:
        """Whether a stranger is refused."""
        return self.uses_tls or bool(self.token_file)


@dataclass(frozen=True, kw_only=True)
class PublicSecurityConfig:
    """The public API, gRPC and HTTP. Files are reloaded when they change."""

    __pydantic_config__ = STRICT

    certificate: PathText = ""
    """PEM file: the orchestrator's certificate with its issuers. Empty: no TLS."""
    private_key: PathText = ""
    """PEM file: the certificate's key, without a pass phrase."""
    client_ca: PathText = ""
    """PEM file: the authority of client certificates. Empty: clients need none."""
    api_keys_file: PathText = ""
    """API keys, hashed, with limits, written by `pilotfish keys`. Without keys, everybody may ask."""
    api_key_sha256: tuple[str, ...] = ()
    """SHA-256 of further API keys, without limits."""
    request_read_timeout_s: PositiveFloat = 30.0
    """An HTTP request, or a gRPC call's message, that is incomplete after this is ended."""
    max_header_bytes: Annotated[int, Field(ge=4096)] = 32 * 1024
    """Maximum size of an HTTP request's line, headers and trailers, or of a gRPC call's metadata."""
    max_connections: PositiveInt = 8192
    """Maximum connections, of HTTP and of gRPC each."""
    max_connections_per_address: PositiveInt = 4096
    """Maximum connections of one client address over HTTP (IPv6: a /64 network). A proxy before the API is one
    address."""
    max_stranger_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the event loop's time for connections of which no request was accepted, or whose last one was
    refused."""
    grpc_max_streams: PositiveInt = 4096
    """Maximum calls at once on one gRPC connection."""
    grpc_max_connection_age_s: PositiveFloat = 3600.0
    """A gRPC connection takes no new calls after this; the client's library opens another."""
    grpc_max_connection_idle_s: PositiveFloat = 300.0
    """A gRPC connection without calls is closed after this."""
    response_write_timeout_s: PositiveFloat = 60.0
    """An HTTP connection whose client takes nothing for this long is closed (on Linux)."""

    def __post_init__(self) -> None:
        require(
            bool(self.certificate) == bool(self.private_key),
            "security.public needs certificate and private_key together",
        )
        require(
            self.uses_tls or not self.client_ca,
            "security.public.client_ca needs certificate and private_key: without TLS no client shows a certificate",
        )

    @property
    def uses_tls(self) -> bool:
        return bool(self.certificate)

    @property
    def needs_api_key(self) -> bool:
        return bool(self.api_keys_file or self.api_key_sha256)


@dataclass(frozen=True, kw_only=True)
class SecurityConfig:
    """Certificates, tokens and API keys. See [SECURITY.md](../SECURITY.md)."""

    __pydantic_config__ = STRICT

    internal: InternalSecurityConfig = field(default_factory=InternalSecurityConfig)
    """Links between orchestrators and replicas."""
    public: PublicSecurityConfig = field(default_factory=PublicSecurityConfig)
    """The public API."""
