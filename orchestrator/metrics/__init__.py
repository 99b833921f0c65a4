"""The orchestrator's metrics: read from what its parts count anyway, when somebody asks."""

from __future__ import annotations

from orchestrator.metrics.collector import OrchestratorCollector

__all__ = ["OrchestratorCollector"]
