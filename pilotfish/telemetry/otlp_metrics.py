"""The metrics of a registry over OTLP: the same names and numbers as Prometheus reads, and the conventional ones.

OpenTelemetry's SDK keeps numbers of its own; here they exist already, so what a scrape would read is told instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

import pilotfish
from pilotfish.config import TelemetryConfig

CONVENTIONAL_NAMES = {
    "pilotfish_e2e_request_latency_seconds": "gen_ai.server.request.duration",
    "pilotfish_time_to_first_token_seconds": "gen_ai.server.time_to_first_token",
    "pilotfish_inter_token_latency_seconds": "gen_ai.server.time_per_output_token",
}
"""Told under OpenTelemetry's names for generative AI as well."""
_log = logging.getLogger(__name__)

_EXPORT_TIMEOUT_S = 5
_CLOSE_S = 2.0
_UNKNOWN: Any = None
"""Absent from the message: a histogram that only counts knows no extremes."""
_SCOPE = InstrumentationScope("pilotfish", pilotfish.__version__)


class MetricsExport:
    """Sends a registry every now and then. Made by `start`, on an event loop."""

    def __init__(self, config: TelemetryConfig, registry: CollectorRegistry, resource: Resource) -> None:
        self._interval_s = config.metrics_export_interval_s
        self._registry = registry
        self._resource = resource
        self._start_ns = time.time_ns()
        self._exporter = OTLPMetricExporter(
            endpoint=config.otlp_endpoint,
            insecure=config.otlp_endpoint.startswith("http://"),
            timeout=_EXPORT_TIMEOUT_S,
        )
        self._task = asyncio.create_task(self._run())

    @classmethod
    def start(cls, config: TelemetryConfig, registry: CollectorRegistry, resource: Resource) -> MetricsExport | None:
        """None where the configuration exports none. Call it on the event loop."""
        if not config.otlp_endpoint or not config.metrics_export_interval_s:
            return None
        return cls(config, registry, resource)

    async def close(self) -> None:
        """Send the numbers of the end, for a while at most."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        last = asyncio.ensure_future(self._send())
        done, _ = await asyncio.wait((last,), timeout=_CLOSE_S)
        # Ends the wait for a collector that does not answer.
        self._exporter.shutdown()
        if not done:
            await last

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._send()

    async def _send(self) -> None:
        # Read here: collectors belong to the event loop. Sent elsewhere: the exporter blocks.
        data = metrics_data(self._registry.collect(), self._resource, self._start_ns, time.time_ns())
        try:
            await asyncio.to_thread(self._exporter.export, data)
        except Exception:
            # The exporter tells itself what the collector has against them; the next numbers may do better.
            _log.exception("metrics could not be exported")


def metrics_data(families: Iterable[Family], resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """Prometheus families as OTLP metrics; start_ns: since when counters count, in nanoseconds since the epoch."""
    metrics: list[Metric] = []
    for family in families:
        data = _data_of(family, start_ns, now_ns)
        if data is None:
            continue
        names = [family.name]
        if family.name in CONVENTIONAL_NAMES:
            names.append(CONVENTIONAL_NAMES[family.name])
        unit = "s" if family.name.endswith("_seconds") else "By" if family.name.endswith("_bytes") else "1"
        metrics.extend(Metric(name, family.documentation, unit, data) for name in names)
    scope = ScopeMetrics(_SCOPE, metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _data_of(family: Family, start_ns: int, now_ns: int) -> Gauge | Sum | Histogram | None:
    if family.type == "histogram":
        points = [_histogram_point(samples, start_ns, now_ns) for samples in _by_labels(family.samples)]
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    is_counter = family.type == "counter"
    numbers = [
        NumberDataPoint(sample.labels, start_ns if is_counter else 0, now_ns, sample.value)
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    if is_counter:
        return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(numbers) if family.type in ("gauge", "info") else None


def _by_labels(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Those of one histogram each: they differ in `le` only."""
    groups: dict[Any, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))].append(sample)
    return list(groups.values())


def _histogram_point(samples: Sequence[Sample], start_ns: int, now_ns: int) -> HistogramDataPoint:
    buckets = [(float(sample.labels["le"]), int(sample.value)) for sample in samples if sample.name.endswith("_bucket")]
    total = sum(sample.value for sample in samples if sample.name.endswith("_sum"))
    counts = [
        count - before for (_, count), before in zip(buckets, [0, *(count for _, count in buckets)], strict=False)
    ]
    labels = {name: value for name, value in samples[0].labels.items() if name != "le"}
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=start_ns,
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=total,
        bucket_counts=counts,
        explicit_bounds=[bound for bound, _ in buckets[:-1]],
        min=_UNKNOWN,
        max=_UNKNOWN,
    )
