from collections.abc import AsyncIterator

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pilotfish.errors import UnavailableError
from pilotfish.rpc.channel import open_channel
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.server import GrpcServer
from pilotfish.rpc.target_frames import TargetFrames
from tests.support.ipv6 import has_ipv6

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
READY_NAMES = ("", "readiness", "pilotfish.v1.Target")


async def start(port: int = 0, host: str = "127.0.0.1") -> GrpcServer:
    return await GrpcServer.start(
        host, port, register=lambda _: None, service_names=("pilotfish.v1.Target",), port_setting="target.port"
    )


async def health(address: str, name: str) -> int:
    async with open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        return response.status


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    server = await start()
    yield server
    await server.stop(None)


async def test_ready_follows_and_liveness_does_not(server: GrpcServer) -> None:
    assert await health(server.address, "readiness") == NOT_SERVING
    for is_ready, status in ((False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)):
        await server.set_ready(is_ready)
        assert [await health(server.address, name) for name in READY_NAMES] == [status] * 3
        assert await health(server.address, "liveness") == SERVING


async def test_reflection_lists_the_services(server: GrpcServer) -> None:
    async with open_channel(server.address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=5)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await call.done_writing()
        response = await call.read()
    names = {service.name for service in response.list_services_response.service}
    assert {"pilotfish.v1.Target", "grpc.health.v1.Health"} <= names


class ClosingEngine:
    """Only notes that it was closed."""

    model = limits = load = None
    num_closed = 0

    async def receive(self) -> list:
        raise UnavailableError("never asked")

    async def close(self) -> None:
        self.num_closed += 1


async def test_a_replica_that_cannot_listen_closes_its_engine(server: GrpcServer) -> None:
    engine = ClosingEngine()
    codec: FrameCodec = TargetFrames()
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(UnavailableError, match="in use"):
        await ReplicaServer.start(codec, engine, host="127.0.0.1", port=port, port_setting="target.port")
    assert engine.num_closed == 1


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
async def test_ipv6(host: str) -> None:
    server = await start(host=host)
    assert server.address.startswith(f"[{host}]:")
    port = server.address.rpartition(":")[2]
    for own in ("[::1]", *(["127.0.0.1"] if host == "::" else [])):
        assert await health(f"{own}:{port}", "liveness") == SERVING
    await server.stop(None)
