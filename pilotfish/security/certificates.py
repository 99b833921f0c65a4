"""The certificate of one side of TLS connections, read again when its files change."""

from __future__ import annotations

import codecs
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.errors import ConfigError
from pilotfish.security.watched_file import WatchedFiles


@dataclass(frozen=True)
class CertificateFiles:
    """Paths of the files."""

    certificate: str
    private_key: str
    ca: str = ""
    """Authority of the other side's certificate. Empty: a server asks for none."""
    section: str = ""
    """Section of the configuration that names them, for messages."""


@dataclass(frozen=True, repr=False)
class Certificates:
    """PEM data that belong together. Their key is for nobody's log."""

    chain: bytes
    private_key: bytes
    ca: bytes | None


class CertificateSource:
    """What the files hold. Any thread may ask: gRPC does from threads of its own."""

    def __init__(self, files: CertificateFiles) -> None:
        """Raises ConfigError for files that cannot be read or do not belong together."""
        paths = tuple(path for path in (files.certificate, files.private_key, files.ca) if path)
        self._watched = WatchedFiles(paths, lambda: _load(files), f"certificates ({files.certificate})")

    @property
    def current(self) -> Certificates:
        """The latest that could be used."""
        return self._watched.current[0]

    @property
    def server_context(self) -> ssl.SSLContext:
        """TLS context for servers, with the latest certificates."""
        return self._watched.current[1]


def _load(files: CertificateFiles) -> tuple[Certificates, ssl.SSLContext]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificates = Certificates(
        read_secret_file(files.certificate, files.section),
        read_secret_file(files.private_key, files.section),
        read_secret_file(files.ca, files.section) if files.ca else None,
    )
    try:
        # An encrypted key is refused instead of asking the terminal for its pass phrase.
        context.load_cert_chain(files.certificate, files.private_key, password=_no_pass_phrase)
        if certificates.ca is not None:
            context.load_verify_locations(cadata=certificates.ca.decode("ascii", "ignore"))  # comments have accents
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, ValueError, OSError) as error:
        problem = getattr(error, "reason", None) or str(error)
        names = ", ".join(path for path in (files.certificate, files.private_key, files.ca) if path)
        raise ConfigError(
            f"the certificate cannot be used ({names}): {problem}; each must be a PEM file, and the private key that "
            "of the first certificate"
        ) from None
    return certificates, context


def read_secret_file(path: str, setting: str = "") -> bytes:
    """Raises ConfigError, which names the file and shows nothing of it. setting: what names the file, for messages."""
    try:
        # Windows' editors begin files with a mark that neither PEM nor a token has.
        return Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except PermissionError:
        problem = f"user {os.getuid()} may not; make it readable for the service, and for nobody else"
    except OSError as error:
        problem = f"{error.strerror}; mount or make it, or name another file"
    raise ConfigError(f"cannot read {path}" + (f" ({setting})" if setting else "") + f": {problem}")


def _no_pass_phrase() -> str:
    raise ValueError("the private key has a pass phrase; store it without one, readable by the service only")


class ReloadingContext(ssl.SSLContext):
    """Gives each new connection the context of the moment: asyncio and uvloop make connections with `wrap_bio`."""

    _source: CertificateSource

    @classmethod
    def of(cls, source: CertificateSource) -> ReloadingContext:
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._source = source
        return context

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """See ssl.SSLContext.wrap_bio."""
        return self._source.server_context.wrap_bio(*arguments, **options)
