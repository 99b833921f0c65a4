"""gRPC's credentials, made of certificates that may change while they are in use."""

from __future__ import annotations

import grpc

from pilotfish.security.certificates import Certificates, CertificateSource


def server_credentials(source: CertificateSource) -> grpc.ServerCredentials:
    """Of a listening server: each new connection gets the certificates of the moment.

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


def channel_credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    """Of one dialled channel, which shows its own certificate."""
    return grpc.ssl_channel_credentials(certificates.ca, certificates.private_key, certificates.chain)


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificates.private_key, certificates.chain)], root_certificates=certificates.ca
    )
