"""An SSL context for asyncio servers whose certificate follows its files."""

from __future__ import annotations

import ssl
from typing import Any

from pilotfish.security.certificates import CertificateSource


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
