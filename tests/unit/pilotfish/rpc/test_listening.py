"""Addresses that cannot be had are told before anything is loaded."""

import socket

import pytest

from pilotfish.errors import UnavailableError
from pilotfish.rpc.server import require_free_port


async def test_a_free_port_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for host in ("127.0.0.1", "localhost", "0.0.0.0", ""):
        await require_free_port(host, port, "target.port")
    socket.create_server(("127.0.0.1", port)).close()
    await require_free_port("203.0.113.1", -1, "target.metrics_port")  # none is wanted


async def test_a_port_in_use_names_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        told = rf"127\.0\.0\.1:{port}: the port is in use.*--set target\.port=PORT"
        with pytest.raises(UnavailableError, match=told):
            await require_free_port("127.0.0.1", port, "target.port")


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
async def test_an_address_of_another_machine(host: str) -> None:
    with pytest.raises(UnavailableError, match=r"must be an address of this machine"):
        await require_free_port(host, 0, "target.port")
