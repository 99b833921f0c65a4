"""What a request is called: in its answer, in logs and in traces."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio

from pilotfish.telemetry.logs import set_request_ids
from pilotfish.telemetry.tracing import RemoteContext

REQUEST_ID_HEADER = "x-request-id"
"""Header of requests, whose callers may name them, and of answers; in gRPC metadata as well."""
TRACE_ID_HEADER = "x-trace-id"
"""Header of answers: 32 hexadecimal digits; in gRPC metadata as well."""
IDENTITY_KEYS = frozenset({REQUEST_ID_HEADER, "traceparent", "tracestate"})
"""Metadata that callers may send."""
MAX_REQUEST_ID_CHARACTERS = 128


@dataclass(frozen=True)
class RequestIdentity:
    """The identity of one request."""

    request_id: str
    trace: RemoteContext

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> RequestIdentity:
        """The caller's names for it, or new ones. headers: their names in small letters."""
        given = headers.get(REQUEST_ID_HEADER, "")
        is_kept = 0 < len(given) <= MAX_REQUEST_ID_CHARACTERS and given.isascii() and given.isprintable()
        request_id = given if is_kept else f"req_{secrets.token_hex(12)}"
        return cls(request_id, RemoteContext.of(headers.get("traceparent", ""), headers.get("tracestate", "")))

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {REQUEST_ID_HEADER: self.request_id, TRACE_ID_HEADER: f"{self.trace.trace_id:032x}"}

    def enter(self) -> RequestIdentity:
        """Itself. What this task, and the tasks that it starts, logs from now on is about this request."""
        ids = self.headers
        set_request_ids(trace_id=ids[TRACE_ID_HEADER], request_id=self.request_id)
        return self


def identified(context: grpc.aio.ServicerContext[Any, Any]) -> RequestIdentity:
    """The identity of a gRPC call, entered, and put in its trailing metadata."""
    metadata = {key: str(value) for key, value in context.invocation_metadata() or () if key in IDENTITY_KEYS}
    identity = RequestIdentity.of(metadata).enter()
    context.set_trailing_metadata(tuple(identity.headers.items()))
    return identity
