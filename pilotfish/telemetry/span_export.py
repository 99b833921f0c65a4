"""Spans on their way to a collector: OTLP over gRPC, from the service's own event loop.

OpenTelemetry's exporter encodes on a thread, 110 us for the three spans of a request, and with its own spans and
their making a request costs 200 us of Python (measured); a busy thread also holds up the loop beside it. Messages that
are built once, as what they travel as, cost a tenth.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc.aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.util.re import parse_env_headers

import pilotfish
from pilotfish.config.environment import OtlpEnvironment, otlp_environment

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_MAX_BATCH_SPANS = 256
"""Put into one message in well under a millisecond."""
_MAX_WAITING_SPANS = 16_384
"""Some 15 MB. What comes while as many wait for a collector that does not keep up is dropped."""
_TIMEOUT_S = 5.0
_CLOSE_S = 2.0
"""When a service stops, its last spans get so long to reach the collector."""


class SpanExport:
    """Sends every second what has come. Used on one event loop; `add` starts it."""

    def __init__(self, endpoint: str, resource: Resource) -> None:
        """endpoint: http:// or https:// URL."""
        self._endpoint = endpoint
        self._resource = resource
        self._scope = InstrumentationScope(name="pilotfish", version=pilotfish.__version__)
        self._waiting: deque[Span] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        self._is_closed = False
        self.num_dropped = 0
        """Spans that the collector never got."""

    def add(self, span: Span) -> None:
        """Send it soon. Never waits, never raises."""
        if self._is_closed or len(self._waiting) >= _MAX_WAITING_SPANS:
            self.num_dropped += 1
            return
        self._waiting.append(span)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Send what waits, for a while at most. Idempotent."""
        self._is_closed = True
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(_CLOSE_S), self._channel() as channel:
                await self._send_all(channel)
        except TimeoutError:
            _log.warning("%d spans did not reach the collector at %s", len(self._waiting), self._endpoint)

    async def _run(self) -> None:
        async with self._channel() as channel:
            while True:
                await asyncio.sleep(_INTERVAL_S)
                await self._send_all(channel)

    async def _send_all(self, channel: grpc.aio.Channel) -> None:
        """Until nothing waits, or the collector cannot be reached."""
        export: Any = TraceServiceStub(channel).Export  # type: ignore[no-untyped-call]
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_MAX_BATCH_SPANS, len(self._waiting)))]
            try:
                await export(self._request(batch), timeout=_TIMEOUT_S, metadata=_headers(otlp_environment()))
            except grpc.aio.AioRpcError as error:
                self._note_failure(error)
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    self._waiting.extendleft(reversed(batch))
                    return
                self.num_dropped += len(batch)
            except asyncio.CancelledError:
                # The service stops: what was on its way is sent once more.
                self._waiting.extendleft(reversed(batch))
                raise
            else:
                self._is_failing = False

    def _request(self, spans: list[Span]) -> ExportTraceServiceRequest:
        scope_spans = ScopeSpans(scope=self._scope, spans=spans)
        return ExportTraceServiceRequest(
            resource_spans=[ResourceSpans(resource=self._resource, scope_spans=[scope_spans])]
        )

    def _note_failure(self, error: grpc.aio.AioRpcError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.warning("spans do not reach the collector at %s: %s", self._endpoint, error.details())

    def _channel(self) -> grpc.aio.Channel:
        url, environment = urlsplit(self._endpoint), otlp_environment()
        if url.scheme == "http":
            return grpc.aio.insecure_channel(url.netloc)
        roots = Path(environment.certificate).read_bytes() if environment.certificate else None
        return grpc.aio.secure_channel(url.netloc, grpc.ssl_channel_credentials(roots))


def _headers(environment: OtlpEnvironment) -> tuple[tuple[str, str], ...]:
    return tuple(parse_env_headers(environment.headers, liberal=True).items())
