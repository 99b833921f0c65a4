"""Certificates made on the spot."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from pilotfish.security.certificates import CertificateFiles


@pytest.fixture
def issue(tmp_path: Path) -> Callable[..., CertificateFiles]:
    """Writes a certificate for 127.0.0.1 of an authority (default: a new one) over the files."""

    def write(authority: trustme.CA | None = None, *, ca: bool = True) -> CertificateFiles:
        authority = authority or trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        chain, key, root = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())
        root.write_bytes(authority.cert_pem.bytes())
        return CertificateFiles(str(chain), str(key), str(root) if ca else "")

    return write
