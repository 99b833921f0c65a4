import socket
from collections.abc import AsyncIterator

import pytest

from pilotfish.config import Config, TargetConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import UnavailableError
from pilotfish.messages import Opened, OpenSequence
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.types import SamplingParams
from target_service.server import start_target
from tests.support.peer import RecordingPeer


@pytest.fixture
async def server() -> AsyncIterator[ReplicaServer]:
    server = await start_target(Config(target=TargetConfig(port=0)), engine=EmulatedEngine())
    yield server
    await server.drain_and_stop(0)


async def test_serves_its_engine_on_a_free_port(server: ReplicaServer) -> None:
    assert server.address.startswith("127.0.0.1:")
    assert not server.address.endswith(":0")
    async with RecordingPeer(server.address, "target") as peer:
        assert peer.stream.model == server.model
        assert await peer.ask(OpenSequence(1, (1, 2), SamplingParams())) == Opened(1, 0)


async def test_the_port_of_another_is_refused(server: ReplicaServer) -> None:
    config = Config(target=TargetConfig(port=int(server.address.rpartition(":")[2])))
    engine = EmulatedEngine()
    with pytest.raises(UnavailableError, match=r"the port is in use.*target\.port"):
        await start_target(config, engine=engine)
    with pytest.raises(UnavailableError, match="closed"):
        engine.send([])


@pytest.mark.parametrize("setting", ["port", "metrics_port"])
async def test_a_port_in_use_is_told_before_a_model_is_loaded(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("target_service.server.ProcessEngine.start", lambda *_, **__: pytest.fail("a model is loaded"))
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
