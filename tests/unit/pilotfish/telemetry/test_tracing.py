import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.telemetry.tracing import RemoteContext, Tracing
from tests.support.otlp_collector import OtlpCollector

NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize("header", ["nonsense", "00-zz-b7ad6b7169203331-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_a_caller_that_talks_nonsense_begins_a_trace(header) -> None:
    first, second = RemoteContext.of(header), RemoteContext.of(header)
    assert first.trace_id > 0
    assert first.trace_id != second.trace_id
    assert f"{first.trace_id:032x}" not in header


async def test_spans_that_begin_a_trace_have_its_id() -> None:
    async with OtlpCollector() as collector:
        tracing = Tracing(TelemetryConfig(otlp_endpoint=collector.endpoint), "x")
        remote = RemoteContext.of("")
        for _ in range(2):
            tracing.begin("one of two", 1, remote).end(2)
        tracing.begin("another", 1).end(2)
        await tracing.close()
        ids = [span.trace_id for span in collector.named("one of two")]
        (other,) = collector.named("another")
    assert ids == [f"{remote.trace_id:032x}"] * 2
    assert other.trace_id not in ids


async def test_sampling_decides_for_whole_traces() -> None:
    async with OtlpCollector() as collector:
        tracing = Tracing(TelemetryConfig(otlp_endpoint=collector.endpoint, trace_sampling=0.5), "x")
        for _ in range(200):
            span = tracing.begin("request", 1)
            tracing.add(span, "queue", 1, 2)
            span.end(3)
        await tracing.close()
        roots, parts = collector.named("request"), collector.named("queue")
    assert 50 < len(roots) < 150
    assert {part.parent_id for part in parts} == {root.span_id for root in roots}


async def test_a_collector_that_is_not_there_does_not_hold_up_the_end() -> None:
    tracing = Tracing(TelemetryConfig(otlp_endpoint=NOWHERE), "x")
    tracing.begin("request", 1).end(2)
    async with asyncio.timeout(20):  # the exporter alone would try for longer than any service has to stop
        await tracing.close()


async def test_opentelemetrys_variables_count_where_the_configuration_is_silent(monkeypatch) -> None:
    async with OtlpCollector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
        for sampler, config in (("always_on", TelemetryConfig()), ("always_off", TelemetryConfig(trace_sampling=1))):
            monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
            await export_a_span(config, sampler)
        # Nothing comes of these.
        await export_a_span(TelemetryConfig(), "not sampled")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        await export_a_span(TelemetryConfig(), "not exported")
        assert [(span.name, span.service) for span in collector.spans] == [
            ("always_on", "chat"),
            ("always_off", "chat"),
        ]


async def test_the_configurations_collector_comes_before_the_variables(monkeypatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", NOWHERE)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    async with OtlpCollector() as collector:
        await export_a_span(TelemetryConfig(otlp_endpoint=collector.endpoint), "ours")
        assert [(span.name, span.service) for span in collector.spans] == [("ours", "x")]


async def test_spans_go_over_http_where_the_variables_say_so(monkeypatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    requests: list[tuple[str, str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            requests.append((self.path, self.headers["x-tenant"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=fish")
        await export_a_span(TelemetryConfig(), "over http")
        thread.join(timeout=10)
    ((path, tenant, body),) = requests
    assert (path, tenant) == ("/v1/traces", "fish")
    assert b"over http" in body


async def export_a_span(config: TelemetryConfig, name: str) -> None:
    tracing = Tracing(config, "x")
    tracing.begin(name, 1).end(2)
    await tracing.close()
