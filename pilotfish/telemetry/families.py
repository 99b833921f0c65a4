"""Metric families for Prometheus, made from plain numbers when they are read.

Nothing is registered globally and nothing is counted twice: the services keep their counters as attributes of the
objects that count, and collectors turn them into families here.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

PREFIX = "pilotfish_"
Labels = str | tuple[str, ...]
"""One label, or several."""
Values = Mapping[str, float] | Mapping[tuple[str, ...], float]
"""By the value of the one label, or of each."""


def gauge(name: str, text: str, value: float) -> Metric:
    """One value that goes up and down."""
    return GaugeMetricFamily(PREFIX + name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """One value that only grows; name: without `_total`."""
    return CounterMetricFamily(PREFIX + name, text, value=float(value))


def labelled_gauge(name: str, text: str, labels: Labels, values: Values) -> Metric:
    """One value for each combination of label values."""
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=_tuple(labels)), values)


def labelled_counter(name: str, text: str, labels: Labels, values: Values) -> Metric:
    """As labelled_gauge, of values that only grow; name: without `_total`."""
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=_tuple(labels)), values)


def info(name: str, text: str, values: Mapping[str, str]) -> Metric:
    """Facts as labels of a metric that is 1; name: without `_info`."""
    return InfoMetricFamily(PREFIX + name, text, value=dict(values))


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for key, value in values.items():
        family.add_metric(_tuple(key), float(value))
    return family


def _tuple(labels: Labels) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels


def new_registry(*collectors: Collector) -> CollectorRegistry:
    """The collectors, and this process's CPU time, memory and file descriptors."""
    registry = CollectorRegistry()
    for collector in (*collectors, ProcessCollector(registry=None)):
        registry.register(collector)
    return registry
