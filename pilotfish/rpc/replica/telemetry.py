"""What a replica needs to be seen: its traces, its metrics, and where they go."""

from __future__ import annotations

import asyncio

from pilotfish.config import TelemetryConfig
from pilotfish.rpc.frames import Service
from pilotfish.rpc.replica.metrics import ReplicaCollector
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.rpc.replica.stream_server import StreamServer
from pilotfish.telemetry.metrics_server import MetricsServer
from pilotfish.telemetry.registry import new_registry
from pilotfish.telemetry.tracing import Tracing


class ReplicaTelemetry:
    """Made before the replica's streams, as these count with its observer; `start` follows, and `close`."""

    def __init__(self, config: TelemetryConfig, service: Service, replica_id: str, metrics_port: int = -1) -> None:
        """metrics_port: of /metrics; 0 takes a free one, -1 serves none."""
        self._config = config
        self._service: Service = service
        self._metrics_port = metrics_port
        self._tracing = Tracing(config, f"pilotfish-{service}")
        self.observer = ReplicaObserver(replica_id, service, self._tracing)
        self._server: MetricsServer | None = None

    @property
    def metrics_address(self) -> str:
        """host:port of /metrics; empty: there is none."""
        return "" if self._server is None else self._server.address

    def start(self, streams: StreamServer) -> None:
        """Serve metrics, as configured. Raises UnavailableError when the port cannot be had."""
        registry = new_registry(ReplicaCollector(self._service, streams))
        if self._metrics_port >= 0:
            self._server = MetricsServer(
                registry,
                self._config.metrics_host,
                self._metrics_port,
                port_setting=f"{self._service}.metrics_port",
            )

    async def close(self) -> None:
        """Send the last spans; stop serving. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close)
        await self._tracing.close()
