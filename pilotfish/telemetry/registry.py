"""A process's metrics, ready to be told: no global registry."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a scrape is answered."""

    body: bytes
    content_type: str


def new_registry(*collectors: Collector) -> CollectorRegistry:
    """The collectors, and this process's CPU time, memory and file descriptors."""
    registry = CollectorRegistry()
    for collector in (*collectors, ProcessCollector(registry=None)):
        registry.register(collector)
    return registry


def expose(registry: CollectorRegistry, accept: str = "") -> Exposition:
    """The text for Prometheus, in the format that the scrape's Accept header prefers."""
    encode, content_type = choose_encoder(accept)
    return Exposition(encode(registry), content_type)
