"""A hosted service ends its process when it is lost, and only then."""

import subprocess
import sys

import pytest

from pilotfish.rpc.hosting import reachable_address

LOST = """
import asyncio
from pilotfish.config import Config
from pilotfish.errors import UnavailableError
from pilotfish.rpc.hosting import HostedService

class Lost:
    async def wait_closed(self):
        raise UnavailableError("the engine ended")

async def main():
    HostedService(Lost(), Config())
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_lost_service_ends_the_process_with_its_reason() -> None:
    ended = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "the engine ended" in ended.stderr


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("127.0.0.1:5", "127.0.0.1:5"),
        ("10.0.0.7:5", "10.0.0.7:5"),
        ("0.0.0.0:5", "192.0.2.9:5"),
        ("[::]:5", "192.0.2.9:5"),
    ],
)
def test_a_wildcard_host_is_reached_at_the_nodes_ip(address: str, reached: str) -> None:
    assert reachable_address(address, node_ip="192.0.2.9") == reached
