"""The target service: an engine that owns the truth, behind the target stream."""

from __future__ import annotations

from functools import partial

from pilotfish.config import Config
from pilotfish.emulation.factory import start_engine
from pilotfish.engine_client import EngineClient
from pilotfish.rpc.replica.server import ReplicaServer, start_replica
from pilotfish.rpc.target_frames import TargetFrames


async def start_target(config: Config, *, engine: EngineClient | None = None, rank_folder: str = "") -> ReplicaServer:
    """Load the model in an engine process (unless an engine is given, which is then owned) and serve.

    With an `emulation` section the engine is emulated. rank_folder: where the other ranks of a tensor-parallel
    target meet the engine; empty: it starts them itself.

    Raises: UnavailableError when the address cannot be had; ModelError kinds when the model cannot; ConfigError
    when strangers would be served.
    """
    start = partial(start_engine, config, "target", rank_folder=rank_folder)
    return await start_replica(config, TargetFrames(), start, engine=engine)
