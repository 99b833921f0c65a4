import socket
from collections.abc import AsyncIterator

import pytest

from pilotfish.config import Config, TargetConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.errors import UnavailableError
from pilotfish.rpc.replica.server import ReplicaServer
from target_service.server import start_target


@pytest.fixture
async def server() -> AsyncIterator[ReplicaServer]:
    server = await start_target(Config(target=TargetConfig(port=0)), engine=EmulatedEngine())
    yield server
    await server.drain_and_stop(0)


@pytest.mark.parametrize("setting", ["port", "metrics_port"])
async def test_a_port_in_use_is_told_before_a_model_is_loaded(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessEngine, "start", lambda *_, **__: pytest.fail("a model is loaded"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"port": 0, setting: taken.getsockname()[1]}
        with pytest.raises(UnavailableError, match=rf"the port is in use.*target\.{setting}=PORT"):
            await start_target(Config(target=TargetConfig(**ports)))


async def test_wait_closed_follows_the_stop(server: ReplicaServer) -> None:
    await server.drain_and_stop(0)
    await server.wait_closed()
    await server.drain_and_stop(0)


async def test_wait_closed_raises_when_the_engine_is_lost() -> None:
    engine = EmulatedEngine()
    server = await start_target(Config(target=TargetConfig(port=0)), engine=engine)
    engine.die(UnavailableError("the engine process was killed by signal 9"))
    with pytest.raises(UnavailableError, match="signal 9"):
        await server.wait_closed()
    await server.drain_and_stop(0)
