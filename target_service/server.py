"""The target service: an engine that owns the truth, behind the target stream."""

from __future__ import annotations

from pilotfish.config import Config
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.listening import require_free_port
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.types import LoadReport, ModelInfo


class TargetServer:
    """One replica of the target service."""

    def __init__(self, replica: ReplicaServer) -> None:
        self._replica = replica

    @classmethod
    async def start(cls, config: Config, *, engine: EngineClient | None = None, rank_folder: str = "") -> TargetServer:
        """Load the model in an engine process (unless an engine is given, which is then owned) and serve.

        With an `emulation` section the engine is emulated. rank_folder: where the other ranks of a tensor-parallel
        target meet the engine; empty: it starts them itself.

        Raises: UnavailableError when the address cannot be had; ModelError kinds when the model cannot; ConfigError
        when strangers would be served.
        """
        security = LinkSecurity(config.security.internal)
        security.check_host(config.target.host, "target.host")
        if engine is None:
            await require_free_port(config.target.host, config.target.port, "target.port")
            await require_free_port(config.telemetry.metrics_host, config.target.metrics_port, "target.metrics_port")
        engine = engine or await _start_engine(config, rank_folder)
        replica = await ReplicaServer.start(
            TargetFrames(),
            engine,
            host=config.target.host,
            port=config.target.port,
            port_setting="target.port",
            telemetry=config.telemetry,
            metrics_port=config.target.metrics_port,
            security=security,
        )
        return cls(replica)

    @property
    def address(self) -> str:
        """host:port it listens on."""
        return self._replica.address

    @property
    def metrics_address(self) -> str:
        """host:port of /metrics for Prometheus; empty: there is none."""
        return self._replica.metrics_address

    @property
    def model(self) -> ModelInfo:
        return self._replica.model

    @property
    def load(self) -> LoadReport:
        """As peers are told."""
        return self._replica.streams.load

    async def drain_and_stop(self, grace_s: float) -> None:
        """Refuse new sequences, give the open ones grace_s to end, stop everything. Idempotent."""
        await self._replica.drain_and_stop(grace_s)

    async def wait_closed(self) -> None:
        """Waits for drain_and_stop. Raises UnavailableError when the engine is lost first."""
        await self._replica.wait_closed()


async def _start_engine(config: Config, rank_folder: str) -> EngineClient:
    if config.emulation.is_on:
        return start_emulated_engine(config, "target")
    return await ProcessEngine.start(config, "target", rank_folder=rank_folder)
