"""The draft service: a proposer behind the draft stream."""

from __future__ import annotations

import msgspec

from draft_service.proposers.registry import start_proposer
from pilotfish.config import Config
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.process.client import EngineClient
from pilotfish.rpc.draft_frames import DraftFrames
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.listening import require_free_port
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.types import LoadReport, ModelInfo


class DraftServer:
    """One replica of the draft service."""

    def __init__(self, replica: ReplicaServer) -> None:
        self._replica = replica

    @classmethod
    async def start(cls, config: Config, *, engine: EngineClient | None = None) -> DraftServer:
        """Start the configured proposer (unless an engine is given, which is then owned) and serve.

        With an `emulation` section the proposer is an emulated one, whichever is configured.

        Raises: ConfigError for an unknown proposer, or when strangers would be served; UnavailableError when the
        address cannot be had; ModelError kinds when the model cannot.
        """
        security = LinkSecurity(config.security.internal)
        security.check_host(config.draft.host, "draft.host")
        if engine is None:
            await require_free_port(config.draft.host, config.draft.port, "draft.port")
            await require_free_port(config.telemetry.metrics_host, config.draft.metrics_port, "draft.metrics_port")
        if engine is None and config.emulation.is_on:
            engine = start_emulated_engine(config, "draft")
        name = engine.model.proposer if engine is not None else config.draft.proposer
        engine = engine or await start_proposer(config)
        replica = await ReplicaServer.start(
            DraftFrames(),
            engine,
            host=config.draft.host,
            port=config.draft.port,
            port_setting="draft.port",
            model=msgspec.structs.replace(engine.model, proposer=name),
            telemetry=config.telemetry,
            metrics_port=config.draft.metrics_port,
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
