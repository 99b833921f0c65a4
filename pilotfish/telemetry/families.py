"""Metric families for Prometheus, made from plain numbers when they are read.

Nothing is registered globally and nothing is counted twice: the services keep their counters as attributes of the
objects that count, and collectors turn them into families here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

PREFIX = "pilotfish_"


def gauge(name: str, text: str, value: float) -> Metric:
    """One value that goes up and down."""
    return GaugeMetricFamily(PREFIX + name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """One value that only grows; name: without `_total`."""
    return CounterMetricFamily(PREFIX + name, text, value=float(value))


def labelled_gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    """One value for each combination of label values."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def labelled_counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    """As labelled_gauge, of values that only grow; name: without `_total`."""
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def info(name: str, text: str, values: Mapping[str, str]) -> Metric:
    """Facts as labels of a metric that is 1; name: without `_info`."""
    return InfoMetricFamily(PREFIX + name, text, value=dict(values))


def by_label(values: Mapping[str, float] | Iterable[tuple[str, float]]) -> dict[tuple[str, ...], float]:
    """Values of one label as the keys that labelled families take."""
    return {(key,): value for key, value in dict(values).items()}
