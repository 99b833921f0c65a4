import asyncio

import pytest

from pilotfish.engine.process.process_engine import EventQueue
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import Opened

A, B = Opened(1, 0), Opened(2, 0)


async def test_a_cancelled_receive_loses_nothing() -> None:
    queue = EventQueue()
    waiting = asyncio.create_task(queue.receive())
    await asyncio.sleep(0)
    queue.put([A])
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert await queue.receive() == [A]


async def test_the_end_comes_after_the_last_events_and_stays() -> None:
    queue = EventQueue()
    queue.put([A])
    queue.fail(UnavailableError("first"))
    queue.fail(UnavailableError("second"))
    queue.put([B])
    assert await queue.receive() == [A]
    for _ in range(2):
        with pytest.raises(UnavailableError, match="first"):
            await queue.receive()


async def test_other_kinds_of_failure_are_told_as_unavailable() -> None:
    queue = EventQueue()
    queue.raise_if_failed()
    queue.fail(PilotfishError("broken"))
    with pytest.raises(UnavailableError, match="broken"):
        queue.raise_if_failed()
