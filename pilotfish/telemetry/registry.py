"""A process's metrics, ready to be told: no global registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector


def new_registry(*collectors: Collector) -> CollectorRegistry:
    """The collectors, and this process's CPU time, memory and file descriptors."""
    registry = CollectorRegistry()
    for collector in (*collectors, ProcessCollector(registry=None)):
        registry.register(collector)
    return registry
