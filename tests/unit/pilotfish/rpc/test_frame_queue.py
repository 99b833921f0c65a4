"""Frames that fill while they wait."""

import asyncio

import pytest

from pilotfish.rpc.frame_queue import FrameQueue


@pytest.fixture
async def queue() -> FrameQueue[list[int]]:
    return FrameQueue(list, max_items_per_frame=3, max_items=5)


def put(queue: FrameQueue[list[int]], *items: int) -> None:
    for item in items:
        queue.frame.append(item)
        queue.count()


async def test_frames_are_bounded_and_come_in_order(queue: FrameQueue[list[int]]) -> None:
    put(queue, 1, 2, 3, 4)
    assert len(queue) == 4
    assert [await queue.next(), await queue.next()] == [[1, 2, 3], [4]]
    assert len(queue) == 0


async def test_it_is_full_when_too_much_waits(queue: FrameQueue[list[int]]) -> None:
    put(queue, 1, 2, 3, 4)
    assert not queue.is_full
    put(queue, 5)
    assert queue.is_full
    await queue.next()
    assert not queue.is_full


async def test_an_empty_frame_comes_only_when_it_is_due(queue: FrameQueue[list[int]]) -> None:
    queue.make_due()
    assert await queue.next() == []
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
