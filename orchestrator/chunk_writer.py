"""From the chunks of an answer to the messages that its client gets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from orchestrator.chunk_buffer import ChunkBuffer
from orchestrator.output import OutputChunk
from orchestrator.write_turns import WriteTurns


class ChunkSource(Protocol):
    """The part of an answer that is needed here."""

    def chunks(self) -> AsyncGenerator[OutputChunk, None]: ...

    @property
    def has_more_at_hand(self) -> bool:
        """Whether the next chunk comes without waiting."""


async def write_chunks(
    answer: ChunkSource,
    write: Callable[[OutputChunk], Awaitable[None]],
    turns: WriteTurns,
    *,
    interval_tokens: int,
) -> None:
    """Write an answer to its end: a chunk as soon as it comes, several as one where they had to wait.

    write: waits while the client does not read, which is what pauses a sequence. interval_tokens: see ChunkBuffer.
    """
    buffer = ChunkBuffer(interval_tokens)
    has_turn = True  # the first token waits for nobody
    async with contextlib.aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            buffer.add(chunk)
            if not buffer.is_due(more_waits=answer.has_more_at_hand):
                continue
            if not has_turn and not turns.take_free():
                await turns.take()
                has_turn = True
                if answer.has_more_at_hand and chunk.finish_reason is None:
                    continue  # what came meanwhile goes with it
            await write(buffer.take())
            has_turn = False
