"""A target replica with an emulated engine on a free port of the loopback interface."""

from collections.abc import AsyncIterator

import pytest

from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.types import Limits


@pytest.fixture
async def engine() -> EmulatedEngine:
    return EmulatedEngine(limits=Limits(max_draft_tokens=4, max_sequences=3), max_context_tokens=1 << 16)


@pytest.fixture
async def replica(engine: EmulatedEngine) -> AsyncIterator[ReplicaServer]:
    server = await ReplicaServer.start(TargetFrames(), engine, host="127.0.0.1", port=0, port_setting="target.port")
    yield server
    await server.drain_and_stop(0)
