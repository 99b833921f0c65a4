"""Who asks over HTTP, and how long the answer may take."""

from __future__ import annotations

import time

from starlette.datastructures import Headers
from starlette.requests import Request

from orchestrator.api_security import client_id_of
from orchestrator.http.auth_middleware import allowance_of
from orchestrator.http.identity_middleware import identity_of
from orchestrator.requests.caller import Caller
from pilotfish.errors import InvalidRequestError

CLIENT_ID_HEADER = "x-client-id"
"""Header that names a request's client for the fair queue; without it, the host that the call comes from does."""
TIMEOUT_HEADER = "x-request-timeout-ms"
"""Header with the time that the whole answer may take, from the request's arrival on: as gRPC's deadline."""
_MAX_TIMEOUT_DIGITS = 12


def caller_of(request: Request) -> Caller:
    """Who calls: the holder of the API key, else the client that the header names, else the host that the call comes
    from. Raises InvalidRequestError for a time limit that is none."""
    host = request.client.host if request.client else ""
    allowance = allowance_of(request.scope)
    return Caller(
        client_id=client_id_of(allowance, request.headers.get(CLIENT_ID_HEADER, ""), host),
        arrival_ns=time.monotonic_ns(),
        timeout_s=_timeout_s(request.headers),
        identity=identity_of(request.scope),
        allowance=allowance,
    )


def holder_of(request: Request) -> str:
    """The client whose memory a request takes: not the claimed one, of which a caller may claim any number."""
    return client_id_of(allowance_of(request.scope), "", request.client.host if request.client else "")


def _timeout_s(headers: Headers) -> float | None:
    text = headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    timeout_ms = int(text) if text.isdecimal() and len(text) <= _MAX_TIMEOUT_DIGITS else 0
    if timeout_ms == 0:
        raise InvalidRequestError(
            f"the header {TIMEOUT_HEADER} is {text[:40]!r}; it must be a whole number of milliseconds, at least 1",
            param=TIMEOUT_HEADER,
        )
    return timeout_ms / 1000
