"""Metric families for Prometheus, made from plain numbers when they are read.

Nothing is registered globally and nothing is counted twice: the services keep their counters as attributes of the
objects that count, and collectors turn them into families here. The registry puts `telemetry.metrics_prefix` before
their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Labels = str | tuple[str, ...]
"""One label, or several."""
Values = Mapping[str, float] | Mapping[tuple[str, ...], float]
"""Values by that of the one label, or of each."""


def gauge(name: str, text: str, value: float) -> Metric:
    """One value that goes up and down."""
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """One value that only grows; name: without `_total`."""
    return CounterMetricFamily(name, text, value=float(value))


def labelled_gauge(name: str, text: str, labels: Labels, values: Values) -> Metric:
    """One value for each combination of label values."""
    return _filled(GaugeMetricFamily(name, text, labels=_tuple(labels)), values)


def labelled_counter(name: str, text: str, labels: Labels, values: Values) -> Metric:
    """As labelled_gauge, for values that only grow. name: without `_total`."""
    return _filled(CounterMetricFamily(name, text, labels=_tuple(labels)), values)


def info(name: str, text: str, values: Mapping[str, str]) -> Metric:
    """Facts as labels of a metric that is 1; name: without `_info`."""
    return InfoMetricFamily(name, text, value=dict(values))


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for key, value in values.items():
        family.add_metric(_tuple(key), float(value))
    return family


def _tuple(labels: Labels) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels


class ServiceCollector(Protocol):
    """Families of a service, named without a prefix."""

    def model_name(self) -> str:
        """Name of the model that is served now; empty: not known yet."""
        ...

    def collect(self) -> Iterator[Metric]: ...


class _Named(Collector):
    """A service's families, with the configured prefix and, as in vLLM, the model's name on each sample."""

    def __init__(self, collector: ServiceCollector, prefix: str) -> None:
        self._collector = collector
        self._prefix = prefix

    def collect(self) -> Iterator[Metric]:
        model = {"model_name": self._collector.model_name()}
        for family in self._collector.collect():
            named = Metric(self._prefix + family.name, family.documentation, family.type)
            named.samples = [
                sample._replace(name=self._prefix + sample.name, labels=model | sample.labels)
                for sample in family.samples
            ]
            yield named


def new_registry(collector: ServiceCollector, prefix: str) -> CollectorRegistry:
    """The service's families, and this process's CPU time, memory and file descriptors."""
    registry = CollectorRegistry()
    for each in (_Named(collector, prefix), ProcessCollector(registry=None)):
        registry.register(each)
    return registry
