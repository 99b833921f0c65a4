"""What the health protocol's answers become."""

from __future__ import annotations

import pytest

from pilotfish.client.health import Status, check_health
from pilotfish.rpc.channel import open_channel
from pilotfish.rpc.server import GrpcServer


@pytest.mark.parametrize(
    ("is_ready", "service", "status"),
    [
        (True, "readiness", "SERVING"),
        (True, "", "SERVING"),
        (False, "readiness", "NOT_SERVING"),
        (False, "liveness", "SERVING"),
        (True, "nonsense", "SERVICE_UNKNOWN"),
    ],
)
async def test_a_service_that_answers(is_ready: bool, service: str, status: Status) -> None:
    server = await GrpcServer.start(
        "127.0.0.1", 0, register=lambda _: None, service_names=(), port_setting="target.port"
    )
    try:
        await server.set_ready(is_ready)
        health = await check_health(open_channel(server.address), server.address, service, 5)
    finally:
        await server.stop(None)
    assert (health.status, health.is_serving) == (status, status == "SERVING")
    assert (health.address, health.service) == (server.address, service)


async def test_nobody_there() -> None:
    health = await check_health(open_channel("127.0.0.1:1"), "127.0.0.1:1", "", 5)
    assert (health.status, health.is_serving) == ("UNREACHABLE", False)
    assert health.detail.startswith("UNAVAILABLE: ")
