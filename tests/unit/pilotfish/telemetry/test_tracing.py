import asyncio
import socket

import pytest

from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.telemetry.tracing import RemoteContext, Tracing, trace_id
from tests.support.otlp_collector import OtlpCollector


@pytest.mark.parametrize("header", ["nonsense", "00-zz-b7ad6b7169203331-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
async def test_a_caller_that_talks_nonsense_begins_a_trace(header) -> None:
    tracing = Tracing(TelemetryConfig(), "x")
    span = tracing.begin("request", 1, RemoteContext(header))
    assert int(trace_id(span), 16) > 0
    assert trace_id(span) not in header
    await tracing.close()


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


async def test_a_collector_that_is_not_there_does_not_hold_up_the_end(unused_port) -> None:
    tracing = Tracing(TelemetryConfig(otlp_endpoint=f"http://127.0.0.1:{unused_port}"), "x")
    tracing.begin("request", 1).end(2)
    async with asyncio.timeout(20):  # the exporter alone would try for longer than any service has to stop
        await tracing.close()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
