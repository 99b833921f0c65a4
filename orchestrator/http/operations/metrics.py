"""The endpoint /metrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from orchestrator.http.exchange import Exchange
from pilotfish.telemetry.registry import expose


class MetricsApi:
    """The endpoint."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def metrics(self, exchange: Exchange) -> None:
        """GET /metrics: text, or OpenMetrics where the scraper prefers it."""
        exposition = expose(self._registry, exchange.request.headers.get("accept", ""))
        await exchange.reply_bytes(exposition.body, exposition.content_type)
