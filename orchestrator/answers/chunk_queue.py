"""Chunks of an answer on their way from its session to its client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from orchestrator.answers.output import OutputChunk, join_chunks


class ChunkQueue:
    """Bounded in tokens: whoever fills it waits for a client that does not read."""

    def __init__(self, max_tokens: int, on_awaited: Callable[[], None] = lambda: None) -> None:
        """on_awaited: called when the next chunk is asked for and not here."""
        self._on_awaited = on_awaited
        self._max_tokens = max_tokens
        self._chunks: deque[OutputChunk] = deque()
        self._num_tokens = 0
        self._is_ended = False
        self._error: BaseException | None = None
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    @property
    def has_chunks(self) -> bool:
        return bool(self._chunks)

    @property
    def is_awaited(self) -> bool:
        """Whether the next chunk is waited for, or the first one will be."""
        return not self._filled.is_set()

    async def put(self, chunk: OutputChunk) -> None:
        """Wait for room, which there is as long as fewer than max_tokens are here, or none."""
        while self._chunks and self._num_tokens >= self._max_tokens:
            self._emptied.clear()
            await self._emptied.wait()
        self._chunks.append(chunk)
        self._num_tokens += len(chunk.token_ids)
        self._filled.set()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come; whoever takes hears of the error after what is here. The first end counts."""
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._filled.set()

    async def take(self) -> OutputChunk | None:
        """All that is here as one, or the next; None at the end. Raises the error that ended it."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return None
            self._filled.clear()
            self._on_awaited()
            await self._filled.wait()
        chunks = list(self._chunks)
        self._chunks.clear()
        self._num_tokens = 0
        self._emptied.set()
        return join_chunks(chunks)
