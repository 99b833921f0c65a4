"""Configuration of who may talk to what, and how that is kept secret.

Everything secret lives in files that are named here: a configuration can be printed, mounted and committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotfish.config.fields import STRICT, require
from pilotfish.config.paths import PathText


@dataclass(frozen=True, kw_only=True)
class InternalSecurityConfig:
    """The links between orchestrators and replicas: all sides have the same section.

    With the three certificate files the links are mutual TLS, with a token the dialling side proves that it belongs
    here; both together hold as well. Files are read again when they change; links that are open stay open.
    """

    __pydantic_config__ = STRICT

    certificate: PathText = ""
    """PEM file of this process's certificate, with those of its issuers. Empty: no TLS."""
    private_key: PathText = ""
    """PEM file of the certificate's key, without a pass phrase."""
    ca: PathText = ""
    """PEM file of the authority that signs every certificate of the links. Have one for nothing else: whoever has a
    certificate of it may verify and draft."""
    server_name: str = ""
    """Name that every replica's certificate carries. Empty: each carries the host that it is dialled at, which under
    Ray is an IP address."""
    token_file: PathText = ""
    """File with a random token of at least 32 characters, which the dialling side shows. Replicas take the token of
    any line, orchestrators show the first: that makes changing it possible. Without TLS a listener on the wire reads
    it. `pilotfish up` makes one where neither it nor a certificate is configured."""
    allow_unauthenticated: bool = False
    """Listen beyond the loopback interface without certificate and token: for a network that only the services are on.
    Otherwise a replica refuses to start there."""

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
    """The public API, over gRPC and HTTP alike. Files are read again when they change."""

    __pydantic_config__ = STRICT

    certificate: PathText = ""
    """PEM file of the orchestrator's certificate, with those of its issuers. Empty: no TLS."""
    private_key: PathText = ""
    """PEM file of the certificate's key, without a pass phrase."""
    client_ca: PathText = ""
    """PEM file of the authority whose certificates clients must have. Empty: clients need none."""
    api_keys_file: PathText = ""
    """YAML file that `pilotfish keys` writes: keys, hashed, with their limits. Empty: anybody may ask."""
    request_read_timeout_s: float = 30.0
    """An HTTP connection whose request is not complete after this long is closed."""
    max_header_bytes: int = 32 * 1024
    """Of an HTTP request: its first line and its headers together; of a gRPC call: its metadata."""
    max_connections: int = 8192
    """HTTP connections at once; more are closed unheard."""

    def __post_init__(self) -> None:
        require(
            bool(self.certificate) == bool(self.private_key),
            "security.public needs certificate and private_key together",
        )
        require(
            self.uses_tls or not self.client_ca,
            "security.public.client_ca needs certificate and private_key: without TLS no client shows a certificate",
        )
        require(self.request_read_timeout_s > 0, "security.public.request_read_timeout_s must be above 0")
        require(self.max_header_bytes >= 4096, "security.public.max_header_bytes must be at least 4096")
        require(self.max_connections >= 1, "security.public.max_connections must be at least 1")

    @property
    def uses_tls(self) -> bool:
        return bool(self.certificate)


@dataclass(frozen=True, kw_only=True)
class SecurityConfig:
    """Who may talk to whom. See SECURITY.md."""

    __pydantic_config__ = STRICT

    internal: InternalSecurityConfig = field(default_factory=InternalSecurityConfig)
    public: PublicSecurityConfig = field(default_factory=PublicSecurityConfig)
