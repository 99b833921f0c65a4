"""A collector that takes OTLP over gRPC and keeps what it gets."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

AttributeValue = str | bool | int | float | list[Any] | None


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came. Ids are lower-case hexadecimal, as in a traceparent; times are since the epoch."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty: it begins a trace."""
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue]
    is_error: bool
    message: str
    """Of an error."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class OtlpCollector:
    """`async with OtlpCollector() as collector`: listens on a free port of the loopback interface."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        """In order of arrival."""
        self.endpoint = ""
        """What `telemetry.otlp_endpoint` takes."""
        self._server = grpc.aio.server()

    async def __aenter__(self) -> Self:
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(self), self._server)  # type: ignore[no-untyped-call]
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._server.stop(0)

    def named(self, name: str) -> list[ReceivedSpan]:
        """Spans of this name, by their start."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_ns)


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: OtlpCollector) -> None:
        self._collector = collector

    async def Export(  # noqa: N802
        self,
        request: trace_service_pb2.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource_spans in request.resource_spans:
            service = str(_attributes(resource_spans.resource.attributes).get("service.name", ""))
            for scope_spans in resource_spans.scope_spans:
                self._collector.spans.extend(_received(span, service) for span in scope_spans.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


def _received(span: Span, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        message=span.status.message,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, AttributeValue]:
    def value_of(value: AnyValue) -> AttributeValue:
        kind = value.WhichOneof("value")
        if kind is None:
            return None
        if kind == "array_value":
            return [value_of(item) for item in value.array_value.values]
        found: str | bool | int | float = getattr(value, kind)
        return found

    return {pair.key: value_of(pair.value) for pair in pairs}
