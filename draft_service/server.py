"""The draft service: a proposer behind the draft stream."""

from __future__ import annotations

from draft_service.proposers.registry import start_proposer
from pilotfish.config import Config
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.messages import EngineClient
from pilotfish.rpc.draft_frames import DraftFrames
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.replica.start import start_replica


async def start_draft(config: Config, *, engine: EngineClient | None = None) -> ReplicaServer:
    """Start the configured proposer (unless an engine is given, which is then owned) and serve.

    With an `emulation` section the proposer is an emulated one, whichever is configured.

    Raises: ConfigError for an unknown proposer, or when strangers would be served; UnavailableError when the
    address cannot be had; ModelError kinds when the model cannot.
    """

    async def start_engine() -> EngineClient:
        if config.emulation.is_on:
            return start_emulated_engine(config, "draft")
        return await start_proposer(config)

    proposer = "" if config.emulation.is_on else config.draft.proposer
    return await start_replica(config, DraftFrames(), start_engine, engine=engine, proposer=proposer)
