"""A hosted service ends its process when it is lost, and only then."""

import asyncio
import subprocess
import sys

import pytest

from pilotfish.rpc.hosting import HostedService, reachable_address

LOST = """
import asyncio
from pilotfish.errors import UnavailableError
from pilotfish.rpc.hosting import HostedService

class Lost:
    async def wait_closed(self):
        raise UnavailableError("the engine ended")

async def main():
    HostedService(Lost())
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Healthy:
    def __init__(self) -> None:
        self.grace_s: float | None = None

    @property
    def address(self) -> str:
        return "127.0.0.1:1"

    async def drain_and_stop(self, grace_s: float) -> None:
        self.grace_s = grace_s

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()


def test_a_lost_service_ends_the_process_with_its_reason() -> None:
    ended = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "the engine ended" in ended.stderr


async def test_stop_drains_and_leaves_the_process_alone() -> None:
    service = Healthy()
    hosted = HostedService(service)
    await hosted.stop()
    assert service.grace_s is not None
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()]


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
