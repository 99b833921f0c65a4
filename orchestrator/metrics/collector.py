"""Everything that the orchestrator tells Prometheus. Read it on the orchestrator's event loop."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import pilotfish
from orchestrator.inference import InferenceService
from orchestrator.metrics.fleet import fleet_families
from orchestrator.metrics.queue import queue_families
from orchestrator.metrics.requests import request_families
from orchestrator.metrics.speculation import speculation_families
from pilotfish.telemetry.families import counter, info


class OrchestratorCollector(Collector):
    """See the module."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield self._build()
        yield from request_families(service.statistics)
        yield from queue_families(service.request_queue)
        yield from speculation_families(service.statistics.totals, service.control, service.ahead.counters)
        yield from fleet_families(service.targets, service.drafts)
        num_deaths = service.grammar_check.num_deaths
        yield counter("grammar_compiler_deaths", "Grammars that a compiling process died of; 400 each.", num_deaths)

    def _build(self) -> Metric:
        link = next((link for link in self._service.targets.links if link.is_connected), None)
        facts = {"version": pilotfish.__version__, "model_name": "", "emulated": "false"}
        if link is not None:
            facts |= {"model_name": link.model.model_id, "emulated": str(link.model.emulated).lower()}
        return info("build", "What runs here. model_name is empty until a target replica was met.", facts)
