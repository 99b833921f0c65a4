"""Traces of one process: OpenTelemetry spans over OTLP, with W3C trace contexts between processes.

A provider of its own, never OpenTelemetry's global one: a process may hold several services, and a library must not
decide for the program around it. Spans are made when what they tell of is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

import pilotfish
from pilotfish.config import TelemetryConfig

Attributes = Mapping[str, AttributeValue]
Span = trace.Span

_EXPORT_TIMEOUT_S = 5
_FLUSH_S = 2.0
"""When a service stops, its last spans get so long to reach the collector."""
_PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class RemoteContext:
    """What a caller says about the trace that a request belongs to: the W3C headers, verbatim."""

    traceparent: str = ""
    """Empty: the request begins a trace."""
    tracestate: str = ""


NO_CONTEXT = RemoteContext()


class Tracing:
    """Makes spans and sends them. Close it: its last spans wait in a buffer."""

    def __init__(self, config: TelemetryConfig, service_name: str) -> None:
        """service_name: of the resource, such as `pilotfish-orchestrator`. Without an endpoint spans have ids, for
        logs, but are not recorded."""
        self.resource = service_resource(service_name)
        self._exporter: OTLPSpanExporter | None = None
        self._is_closed = False
        sampler = ParentBased(TraceIdRatioBased(config.trace_sampling)) if config.otlp_endpoint else ALWAYS_OFF
        self._provider = TracerProvider(resource=self.resource, sampler=sampler, shutdown_on_exit=False)
        if config.otlp_endpoint:
            self._exporter = OTLPSpanExporter(
                endpoint=config.otlp_endpoint,
                insecure=config.otlp_endpoint.startswith("http://"),
                timeout=_EXPORT_TIMEOUT_S,
            )
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("pilotfish", pilotfish.__version__)

    def begin(
        self, name: str, start_ns: int, remote: RemoteContext = NO_CONTEXT, kind: trace.SpanKind = trace.SpanKind.SERVER
    ) -> Span:
        """A span that began at start_ns (since the epoch) and is to be ended, in the caller's trace if there is one."""
        context = None
        if remote.traceparent:
            context = _PROPAGATOR.extract({"traceparent": remote.traceparent, "tracestate": remote.tracestate})
        # An empty context otherwise: whatever is current in this process is not this request's.
        return self._tracer.start_span(name, context or Context(), kind=kind, start_time=start_ns)

    def add(self, parent: Span, name: str, start_ns: int, end_ns: int, attributes: Attributes | None = None) -> Span:
        """A span inside another one, over already. Times are nanoseconds since the epoch."""
        span = self._tracer.start_span(
            name, trace.set_span_in_context(parent, Context()), attributes=attributes, start_time=start_ns
        )
        span.end(max(start_ns, end_ns))
        return span

    async def close(self) -> None:
        """Send what is left, for a while at most. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        stopping = asyncio.ensure_future(asyncio.to_thread(self._provider.shutdown))
        done, _ = await asyncio.wait((stopping,), timeout=_FLUSH_S)
        if not done and self._exporter is not None:
            self._exporter.shutdown()  # ends the wait for a collector that does not answer
        await stopping


def traceparent_of(span: Span) -> str:
    """The W3C header that makes what another process does part of the span; empty if nobody records it."""
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def trace_id_of(span: Span) -> str:
    """32 hexadecimal digits, as logs show them."""
    return f"{span.get_span_context().trace_id:032x}"


def service_resource(service_name: str) -> Resource:
    """Who tells; OTEL_RESOURCE_ATTRIBUTES adds to it."""
    return Resource.create({"service.name": service_name, "service.version": pilotfish.__version__})
