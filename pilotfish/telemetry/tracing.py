"""Traces of one process: OpenTelemetry's spans over OTLP, with W3C trace contexts between processes.

Nothing is global: a process may hold several services, and a library must not decide for the program around it.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import pilotfish
from pilotfish.config import TracingConfig, environment

AttributeValue = str | bool | int | float | list[str]
Attributes = Mapping[str, AttributeValue]

_PROPAGATOR = TraceContextTextMapPropagator()
_NEW_IDS = RandomIdGenerator()
_MAX_WAITING_SPANS = 16_384
"""Spans that wait for a collector that does not keep up, some 15 MB; further ones are dropped."""
_INTERVAL_MS = 1_000
_TIMEOUT_S = 5
_CLOSE_S = 2.0
"""When a service stops, its last spans get so long to reach the collector."""


@dataclass(frozen=True, slots=True)
class RemoteContext:
    """The trace that a request belongs to."""

    trace_id: int
    """Id of the caller's trace, or of the trace that the request begins; 0: drawn with its span."""
    parent: Context = field(default_factory=Context)
    """Holds the caller's span, if there is one."""

    @classmethod
    def of(cls, traceparent: str, tracestate: str = "") -> RemoteContext:
        """The context in W3C headers, verbatim; empty or wrong ones begin a trace."""
        parent = _PROPAGATOR.extract({"traceparent": traceparent, "tracestate": tracestate}, Context())
        trace_id = get_current_span(parent).get_span_context().trace_id
        return cls(trace_id or _NEW_IDS.generate_trace_id(), parent)


class _TraceIds(RandomIdGenerator):
    """Spans begin traces whose ids are drawn beforehand, where that was done."""

    drawn = 0

    def generate_trace_id(self) -> int:
        return self.drawn or super().generate_trace_id()


NO_CONTEXT = RemoteContext(0)


class Tracing:
    """Makes spans. Close it: the last ones wait to be sent."""

    def __init__(self, config: TracingConfig, service_name: str) -> None:
        """service_name: the resource's, such as `pilotfish-orchestrator`. Without an endpoint spans have ids, for
        logs, but are not recorded.

        What the configuration leaves open, OpenTelemetry's own environment variables decide.
        """
        self._exporter = _exporter(config)
        sampler = None if config.trace_sampling is None else ParentBased(TraceIdRatioBased(config.trace_sampling))
        self._ids = _TraceIds()
        self._provider = TracerProvider(
            ALWAYS_OFF if self._exporter is None else sampler,
            _resource(service_name),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        if self._exporter is not None:
            self._provider.add_span_processor(
                BatchSpanProcessor(self._exporter, _MAX_WAITING_SPANS, schedule_delay_millis=_INTERVAL_MS)
            )
        self._tracer = self._provider.get_tracer("pilotfish", pilotfish.__version__)

    def begin(self, name: str, start_ns: int, remote: RemoteContext = NO_CONTEXT) -> Span:
        """A request to this process, in the caller's trace if there is one, whose decision to record it holds.

        start_ns: since the epoch, as all times here.
        """
        self._ids.drawn = remote.trace_id
        return self._tracer.start_span(name, remote.parent, SpanKind.SERVER, start_time=start_ns)

    def add(self, parent: Span, name: str, start_ns: int, end_ns: int, attributes: Attributes | None = None) -> Span:
        """A span inside another one, over already."""
        context = set_span_in_context(parent, Context())
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=start_ns)
        span.end(max(start_ns, end_ns))
        return span

    async def close(self) -> None:
        """Send what is left, for a while at most. Idempotent."""
        exporter, self._exporter = self._exporter, None
        if exporter is None:
            return
        last = asyncio.ensure_future(asyncio.to_thread(self._provider.shutdown))
        _, waiting = await asyncio.wait((last,), timeout=_CLOSE_S)
        if waiting:
            # Ends the wait for a collector that does not answer.
            await asyncio.to_thread(exporter.shutdown)
        await last


def traceparent(span: Span) -> str:
    """The W3C header that makes what another process does part of the span; empty if nobody records it."""
    carrier: dict[str, str] = {}
    if span.is_recording():
        _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
    return carrier.get("traceparent", "")


def end_span(span: Span, end_ns: int, error: str = "", message: str = "") -> None:
    """End the span. error: empty if all went well, else a stable name for `error.type`; message: for people."""
    if error:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, message))
    span.end(end_ns)


def _exporter(config: TracingConfig) -> SpanExporter | None:
    """Exporter to the configured collector, else to that of OpenTelemetry's variables; None: there is none."""
    variables = environment()

    def of_traces(name: str) -> str:
        return variables.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or variables.get(f"OTEL_EXPORTER_OTLP_{name}", "")

    if not config.otlp_endpoint and (not of_traces("ENDPOINT") or variables.get("OTEL_TRACES_EXPORTER") == "none"):
        return None
    over_http = not config.otlp_endpoint and of_traces("PROTOCOL").startswith("http")
    # A client that exports nothing does without the packages.
    module = importlib.import_module(
        f"opentelemetry.exporter.otlp.proto.{'http' if over_http else 'grpc'}.trace_exporter"
    )
    options: dict[str, object] = {}
    if config.otlp_endpoint:
        is_plain = config.otlp_endpoint.startswith("http://")
        options = {"endpoint": config.otlp_endpoint, "insecure": is_plain, "timeout": _TIMEOUT_S}
    exporter: SpanExporter = module.OTLPSpanExporter(**options)
    return exporter


def _resource(service_name: str) -> Resource:
    """Description of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come before what we say."""
    ours = Resource.create({"service.name": service_name, "service.version": pilotfish.__version__})
    return ours.merge(OTELResourceDetector().detect())
