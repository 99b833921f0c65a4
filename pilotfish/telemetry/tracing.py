"""Traces of one process: OpenTelemetry spans over OTLP, with W3C trace contexts between processes.

Spans are plain objects that are told when they end; ids, sampling, propagation and the resource are OpenTelemetry's.
Nothing is global: a process may hold several services, and a library must not decide for the program around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry import trace
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import pilotfish
from pilotfish.config import TracingConfig
from pilotfish.telemetry.span_export import SpanExport

AttributeValue = str | bool | int | float | list[str]
Attributes = Mapping[str, AttributeValue]

_PROPAGATOR = TraceContextTextMapPropagator()
_NO_PARENT = 0


@dataclass(frozen=True, slots=True)
class RemoteContext:
    """What a caller says about the trace that a request belongs to: the W3C headers, verbatim."""

    traceparent: str = ""
    """Empty: the request begins a trace."""
    tracestate: str = ""


NO_CONTEXT = RemoteContext()


@dataclass(slots=True)
class Span:
    """Something that takes time. Made by Tracing; sent when it ends."""

    trace_id: int
    span_id: int
    parent_id: int
    """0: it begins its trace."""
    name: str
    start_ns: int
    """Since the epoch, as all times here."""
    export: SpanExport | None
    """None: it is not recorded."""
    is_server: bool = False
    """It is somebody's request to this process."""
    tracestate: str = ""
    attributes: dict[str, AttributeValue] = field(default_factory=dict)

    @property
    def is_recording(self) -> bool:
        """Whether anybody will see it."""
        return self.export is not None

    @property
    def traceparent(self) -> str:
        """The W3C header that makes what another process does part of the span; empty if nobody records it."""
        return "" if self.export is None else f"00-{self.trace_id:032x}-{self.span_id:016x}-01"

    def end(self, end_ns: int, error: str = "", message: str = "") -> None:
        """It is over. error: empty if all went well, else a stable name for `error.type`; message: for people."""
        if self.export is None:
            return
        if error:
            self.attributes["error.type"] = error
        self.export.add(_encode(self, end_ns, error, message))


class Tracing:
    """Makes spans. Close it: the last ones wait to be sent."""

    def __init__(self, config: TracingConfig, service_name: str) -> None:
        """service_name: of the resource, such as `pilotfish-orchestrator`. Without an endpoint spans have ids, for
        logs, but are not recorded."""
        self.resource = service_resource(service_name)
        self._ids = RandomIdGenerator()
        self._sampler = TraceIdRatioBased(config.trace_sampling)
        self._export = (
            SpanExport(config.otlp_endpoint, _encode_resource(self.resource)) if config.otlp_endpoint else None
        )

    def begin(self, name: str, start_ns: int, remote: RemoteContext = NO_CONTEXT) -> Span:
        """A request to this process, in the caller's trace if there is one, whose decision to record it holds."""
        span_id = self._ids.generate_span_id()
        parent = _remote_span(remote) if remote.traceparent else None
        if parent is None:
            trace_id = self._ids.generate_trace_id()
            is_sampled = self._export is not None and self._is_sampled(trace_id)
            return Span(
                trace_id, span_id, _NO_PARENT, name, start_ns, self._export if is_sampled else None, is_server=True
            )
        export = self._export if parent.trace_flags.sampled else None
        tracestate = parent.trace_state.to_header()
        return Span(
            parent.trace_id, span_id, parent.span_id, name, start_ns, export, is_server=True, tracestate=tracestate
        )

    def add(
        self, parent: Span, name: str, start_ns: int, end_ns: int, attributes: dict[str, AttributeValue] | None = None
    ) -> Span:
        """A span inside another one that is recorded, over already."""
        span = Span(
            parent.trace_id,
            self._ids.generate_span_id(),
            parent.span_id,
            name,
            start_ns,
            parent.export,
            tracestate=parent.tracestate,
            attributes=attributes or {},
        )
        span.end(max(start_ns, end_ns))
        return span

    @property
    def num_dropped_spans(self) -> int:
        """That the collector never got."""
        return 0 if self._export is None else self._export.num_dropped

    async def close(self) -> None:
        """Send what is left, for a while at most. Idempotent."""
        if self._export is not None:
            await self._export.close()

    def _is_sampled(self, trace_id: int) -> bool:
        return self._sampler.should_sample(None, trace_id, "").decision is Decision.RECORD_AND_SAMPLE


def service_resource(service_name: str) -> Resource:
    """Who tells; OTEL_RESOURCE_ATTRIBUTES adds to it."""
    return Resource.create({"service.name": service_name, "service.version": pilotfish.__version__})


def _remote_span(remote: RemoteContext) -> trace.SpanContext | None:
    """None where the headers are none."""
    carrier = {"traceparent": remote.traceparent, "tracestate": remote.tracestate}
    context = trace.get_current_span(_PROPAGATOR.extract(carrier, trace.set_span_in_context(trace.INVALID_SPAN)))
    span_context = context.get_span_context()
    return span_context if span_context.is_valid else None


def _encode(span: Span, end_ns: int, error: str, message: str) -> trace_pb2.Span:
    encoded = trace_pb2.Span(
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.span_id.to_bytes(8, "big"),
        parent_span_id=span.parent_id.to_bytes(8, "big") if span.parent_id else b"",
        trace_state=span.tracestate,
        name=span.name,
        kind=trace_pb2.Span.SPAN_KIND_SERVER if span.is_server else trace_pb2.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=end_ns,
    )
    if error:
        encoded.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        encoded.status.message = message
    _add_attributes(encoded.attributes, span.attributes)
    return encoded


def _encode_resource(resource: Resource) -> resource_pb2.Resource:
    encoded = resource_pb2.Resource()
    values = {name: value for name, value in resource.attributes.items() if isinstance(value, str | bool | int | float)}
    _add_attributes(encoded.attributes, values)
    return encoded


def _add_attributes(pairs: RepeatedCompositeFieldContainer[KeyValue], attributes: Attributes) -> None:
    for name, value in attributes.items():
        pair = pairs.add()
        pair.key = name
        if isinstance(value, str):
            pair.value.string_value = value
        elif isinstance(value, bool):
            pair.value.bool_value = value
        elif isinstance(value, int):
            pair.value.int_value = value
        elif isinstance(value, float):
            pair.value.double_value = value
        else:
            for item in value:
                pair.value.array_value.values.add().string_value = item
