"""Messages of an answer, with a hand on when its chunks come and when others take the turns."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from orchestrator.answers.chunk_writer import write_chunks
from orchestrator.answers.loop_turns import LoopTurns
from orchestrator.answers.output import OutputChunk, join_chunks
from pilotfish.types import FinishReason
from tests.support.output import output_chunk


class Answer:
    """Its chunks wait in a queue; what is there is taken as one."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[OutputChunk] = asyncio.Queue()
        self.is_closed = False
        self.is_late_at_hand = False
        """Whether something lies there that is none of its chunks, such as a verdict behind the end."""

    def put(self, *texts: str, finish: FinishReason | None = None) -> None:
        for text in texts:
            self.waiting.put_nowait(output_chunk(text, finish))

    async def chunks(self) -> AsyncGenerator[OutputChunk, None]:
        try:
            while True:
                found = [await self.waiting.get()]
                while not self.waiting.empty():
                    found.append(self.waiting.get_nowait())
                latest = join_chunks(found)
                yield latest
                if latest.finish_reason is not None:
                    return
        finally:
            self.is_closed = True

    @property
    def has_more_at_hand(self) -> bool:
        return self.is_late_at_hand or not self.waiting.empty()


class Client:
    """Reads only when it is told to."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def write(self, message: OutputChunk) -> None:
        self.messages.append(message.text)
        await self.reads.wait()


@pytest.fixture
async def turns() -> LoopTurns:
    return LoopTurns(turns_per_pass=1)


def begin(answer: Answer, client: Client, turns: LoopTurns) -> asyncio.Task[None]:
    return asyncio.create_task(write_chunks(answer, client.write, turns, interval_tokens=1))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_comes_while_the_client_does_not_read_is_one_message(turns: LoopTurns) -> None:
    answer, client = Answer(), Client()
    writing = begin(answer, client, turns)
    client.reads.clear()
    answer.put("a")
    await settle()
    answer.put("b", "c", "d")
    answer.put("e", finish=FinishReason.STOP)
    client.reads.set()
    await writing
    assert client.messages == ["a", "bcde"]


async def test_the_first_token_passes_all_who_wait(turns: LoopTurns) -> None:
    answer, client = Answer(), Client()
    others = [asyncio.create_task(turns.take()) for _ in range(50)]
    writing = begin(answer, client, turns)
    answer.put("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert client.messages == ["a"]
    answer.put("b", finish=FinishReason.STOP)
    await writing
    assert all(other.done() for other in others)


async def test_a_cancelled_answer_is_closed(turns: LoopTurns) -> None:
    answer, client = Answer(), Client()
    client.reads.clear()
    writing = begin(answer, client, turns)
    answer.put("a")
    await settle()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert answer.is_closed
    assert len(asyncio.all_tasks()) == 1


async def test_the_last_message_waits_for_nothing_behind_it(turns: LoopTurns) -> None:
    answer, client = Answer(), Client()
    writing = begin(answer, client, turns)
    answer.put("a")
    await settle()
    others = [asyncio.create_task(turns.take()) for _ in range(3)]
    await asyncio.sleep(0)
    answer.is_late_at_hand = True
    answer.put("b", finish=FinishReason.LENGTH)
    await asyncio.gather(writing, *others)
    assert client.messages == ["a", "b"]
