"""One replica of a service: an engine behind a gRPC server. Target and draft service alike."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable

import msgspec

from pilotfish.config import Config, TelemetryConfig
from pilotfish.engine_client import EngineClient
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.handshake import Welcome
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.rpc.replica.metrics import ReplicaCollector
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.rpc.replica.stream_server import StreamServer
from pilotfish.rpc.server import GrpcServer, require_free_port
from pilotfish.telemetry.families import new_registry
from pilotfish.telemetry.metrics_server import MetricsServer
from pilotfish.telemetry.tracing import Tracing
from pilotfish.types import LoadReport, ModelInfo

STOP_GRACE_S = 1.0
"""Time for calls to end that were asked to."""


class ReplicaServer:
    """Owns its engine."""

    def __init__(
        self, engine: EngineClient, streams: StreamServer, server: GrpcServer, metrics: MetricsServer | None
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._server = server
        self._stopped = asyncio.Event()
        self._watch = asyncio.create_task(self._report_loss())
        self.streams = streams

    @classmethod
    async def start(
        cls,
        codec: FrameCodec,
        engine: EngineClient,
        *,
        host: str,
        port: int,
        port_setting: str,
        model: ModelInfo | None = None,
        telemetry: TelemetryConfig | None = None,
        metrics_port: int = -1,
        security: LinkSecurity = OPEN_LINKS,
    ) -> ReplicaServer:
        """Listen and serve; the engine is closed when that fails.

        model: sent to peers instead of engine.model. port_setting: configuration key of the port.
        metrics_port: port of /metrics for Prometheus; 0 takes a free one, -1 serves none.
        security: whom the streams serve.
        Raises: UnavailableError when the address cannot be had.
        """
        replica_id = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        welcome = Welcome(model=model or engine.model, limits=engine.limits, replica_id=replica_id)
        telemetry = telemetry or TelemetryConfig()
        tracing = Tracing(telemetry, f"pilotfish-{codec.service}")
        streams = StreamServer(codec, engine, welcome, ReplicaObserver(replica_id, codec.service, tracing), security)
        metrics = None
        try:
            if metrics_port >= 0:
                registry = new_registry(ReplicaCollector(codec.service, streams), telemetry.metrics_prefix)
                setting = f"{codec.service}.metrics_port"
                metrics = MetricsServer(registry, telemetry.metrics_host, metrics_port, port_setting=setting)
            server = await GrpcServer.start(
                host,
                port,
                register=lambda grpc_server: codec.add_to_server(streams.connect, grpc_server),
                service_names=(codec.service_name,),
                port_setting=port_setting,
                credentials=security.server_credentials,
            )
            streams.start()
            await server.set_ready(True)
        except BaseException:
            await streams.close()
            await engine.close()
            await _close(metrics, streams.observer)
            raise
        return cls(engine, streams, server, metrics)

    @property
    def address(self) -> str:
        """The `host:port` it listens on."""
        return self._server.address

    @property
    def model(self) -> ModelInfo:
        return self.streams.welcome.model

    @property
    def load(self) -> LoadReport:
        """The load as it is reported to peers."""
        return self.streams.load

    async def drain_and_stop(self, grace_s: float) -> None:
        """Refuse new sequences, give the open ones grace_s to end, stop everything. Idempotent."""
        try:
            await self._server.set_ready(False)
            await self.streams.drain(grace_s)
        finally:
            self._watch.cancel()
            self.streams.disconnect()
            await self._server.stop(STOP_GRACE_S)
            await self.streams.close()
            await self._engine.close()
            metrics, self._metrics = self._metrics, None
            await _close(metrics, self.streams.observer)
            self._stopped.set()

    async def wait_closed(self) -> None:
        """Waits for drain_and_stop. Raises UnavailableError when the engine is lost first."""
        stopped = asyncio.create_task(self._stopped.wait())
        lost = asyncio.create_task(self.streams.wait_lost())
        try:
            await asyncio.wait((stopped, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            lost.cancel()
        if not self._stopped.is_set():
            raise lost.result()

    async def _report_loss(self) -> None:
        """A replica without its engine serves nobody."""
        await self.streams.wait_lost()
        await self._server.set_ready(False)


async def _close(metrics: MetricsServer | None, observer: ReplicaObserver) -> None:
    """Stop serving metrics; send the last spans. Idempotent."""
    if metrics is not None:
        await asyncio.to_thread(metrics.close)
    await observer.close()


async def start_replica(
    config: Config,
    codec: FrameCodec,
    start_engine: Callable[[], Awaitable[EngineClient]],
    *,
    engine: EngineClient | None = None,
    proposer: str = "",
) -> ReplicaServer:
    """Start the engine, unless one is given, which is then owned, and serve it.

    proposer: the proposer sent to peers of an engine that is started here; empty: what it says itself.
    Raises: what start_engine does; UnavailableError when an address cannot be had; ConfigError when strangers would be
    served.
    """
    service = codec.service
    section = config.target if service == "target" else config.draft
    security = LinkSecurity(config.security.internal)
    security.check_host(section.host, f"{service}.host")
    if engine is None:
        await require_free_port(section.host, section.port, f"{service}.port")
        await require_free_port(config.telemetry.metrics_host, section.metrics_port, f"{service}.metrics_port")
        engine = await start_engine()
    else:
        proposer = ""
    return await ReplicaServer.start(
        codec,
        engine,
        host=section.host,
        port=section.port,
        port_setting=f"{service}.port",
        model=msgspec.structs.replace(engine.model, proposer=proposer) if proposer else None,
        telemetry=config.telemetry,
        metrics_port=section.metrics_port,
        security=security,
    )
