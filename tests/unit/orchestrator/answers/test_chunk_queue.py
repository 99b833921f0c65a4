import asyncio

import pytest

from orchestrator.answers.chunk_queue import ChunkQueue
from pilotfish.types import FinishReason
from tests.support.output import output_chunk


async def test_what_waits_is_taken_as_one() -> None:
    queue = ChunkQueue(100)
    for text in "abc":
        await queue.put(output_chunk(text))
    assert queue.has_chunks
    taken = await queue.take()
    assert taken is not None
    assert taken.text == "abc"
    assert not queue.has_chunks


async def test_it_says_when_the_next_chunk_is_waited_for() -> None:
    calls: list[str] = []
    queue = ChunkQueue(9, on_awaited=lambda: calls.append("awaited"))
    assert queue.is_awaited  # an answer's first chunk is waited for by everybody
    await queue.put(output_chunk("a"))
    assert not queue.is_awaited
    await queue.take()
    assert not queue.is_awaited
    assert calls == []
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert queue.is_awaited
    assert calls == ["awaited"]
    await queue.put(output_chunk("b"))
    assert (await waiting).text == "b"  # type: ignore[union-attr]


async def test_whoever_fills_it_waits_for_the_client() -> None:
    queue = ChunkQueue(2)
    await queue.put(output_chunk("ab"))
    waiting = asyncio.create_task(queue.put(output_chunk("c")))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert (await queue.take()).text == "ab"  # type: ignore[union-attr]
    await waiting
    assert (await queue.take()).text == "c"  # type: ignore[union-attr]


async def test_the_end_comes_after_what_is_there() -> None:
    queue = ChunkQueue(9)
    await queue.put(output_chunk("a", FinishReason.STOP))
    queue.end()
    assert (await queue.take()).text == "a"  # type: ignore[union-attr]
    assert await queue.take() is None


async def test_an_error_takes_nothing_from_what_was_there() -> None:
    queue = ChunkQueue(9)
    await queue.put(output_chunk("a"))
    queue.end(RuntimeError("lost"))
    queue.end()
    assert (await queue.take()).text == "a"  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="lost"):
        await queue.take()


async def test_one_chunk_has_room_always() -> None:
    queue = ChunkQueue(0)
    await queue.put(output_chunk("abc"))
    assert (await queue.take()).text == "abc"  # type: ignore[union-attr]
