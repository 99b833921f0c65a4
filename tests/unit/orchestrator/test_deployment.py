"""The orchestrator's deployment, without a Ray: what target replicas hear of its queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import deployment
from orchestrator.deployment import report_waiting
from pilotfish.config import Config


class Broadcasts:
    """A handle of the target pool: what was broadcast, and whether replicas are there to hear it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.problem: Exception | None = None
        self.said = asyncio.Event()

    def broadcast(self, method: str, orchestrator_id: str, num_waiting: int) -> Any:
        self.heard.append((method, num_waiting))

        async def results_async(**_options: Any) -> list[None]:
            self.said.set()
            if self.problem is not None:
                raise self.problem
            return []

        return SimpleNamespace(results_async=results_async)

    async def next(self) -> Any:
        self.said.clear()
        await self.said.wait()
        return self.heard[-1][1]


@pytest.fixture
def handle() -> Broadcasts:
    return Broadcasts()


@pytest.fixture
async def queue(handle: Broadcasts, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimpleNamespace]:
    """The queue of an orchestrator that reports on it."""
    monkeypatch.setattr(deployment, "WAITING_REPORT_S", 0)
    queue = SimpleNamespace(num_waiting=0)

    async def target_handle() -> Broadcasts:
        return handle

    task = asyncio.create_task(report_waiting(lambda: queue.num_waiting, target_handle))
    yield queue
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_queue_is_told_while_there_is_one_and_once_when_it_is_empty(
    queue: SimpleNamespace, handle: Broadcasts
) -> None:
    queue.num_waiting = 5
    assert await handle.next() == 5
    assert await handle.next() == 5
    queue.num_waiting = 0
    while await handle.next():
        pass
    count = len(handle.heard)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(handle.heard) == count
    assert {method for method, _ in handle.heard} == {"note_waiting"}


class StartedServer:
    """An orchestrator's server that has no target until the test says so."""

    address = "127.0.0.1:7"
    service = SimpleNamespace(request_queue=SimpleNamespace(num_waiting=0))

    def __init__(self) -> None:
        self.timeout_s = 0.0
        self.is_asked, self.has_target = asyncio.Event(), asyncio.Event()

    async def wait_ready(self, timeout_s: float) -> bool:
        self.timeout_s = timeout_s
        self.is_asked.set()
        return await self.has_target.wait()

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()

    async def drain_and_stop(self, _grace_s: float) -> None: ...


class Collectable(deployment.OrchestratorReplica):
    """Serve awaits a replica's __del__; Python, which calls it as well, does not."""

    def __del__(self) -> None: ...  # type: ignore[override]


async def test_a_replica_runs_for_serve_once_it_has_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StartedServer()

    async def start(*_arguments: Any) -> StartedServer:
        return server

    monkeypatch.setattr(deployment.OrchestratorServer, "start", start)
    replica = Collectable(Config(), {})
    starting = asyncio.create_task(replica.record_replica_metadata())
    await server.is_asked.wait()
    assert server.timeout_s == deployment.READY_WAIT_S
    assert not starting.done()
    server.has_target.set()
    assert await starting == {"address": server.address}
    await deployment.OrchestratorReplica.__del__(replica)
