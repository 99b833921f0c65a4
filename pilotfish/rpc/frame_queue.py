"""Items that wait for the wire, built straight into the frames they will travel in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

FrameT = TypeVar("FrameT")


class FrameQueue(Generic[FrameT]):
    """Frames in order; the last one is still being filled. For one reader, on one event loop.

    To put an item: check `is_full`, add it to `frame`, call `count`.
    """

    def __init__(self, new_frame: Callable[[], FrameT], *, max_items_per_frame: int, max_items: int) -> None:
        """max_items_per_frame: of ordinary size; a frame ends sooner with bigger ones."""
        self._new_frame = new_frame
        self._max_items_per_frame = max_items_per_frame
        self._max_items = max_items
        self._complete: deque[tuple[FrameT, int]] = deque()
        self._num_complete_items = 0
        self._num_frame_items = self._frame_size = 0
        self._is_due = asyncio.Event()
        self.frame = new_frame()
        """The frame that takes the next item."""

    def __len__(self) -> int:
        """Items that wait."""
        return self._num_complete_items + self._num_frame_items

    @property
    def is_full(self) -> bool:
        return len(self) >= self._max_items

    def count(self, size: int = 1) -> None:
        """An item was added to `frame`, as big as that many ordinary ones."""
        self._num_frame_items += 1
        self._frame_size += size
        if self._frame_size >= self._max_items_per_frame:
            self._complete.append((self.frame, self._num_frame_items))
            self._num_complete_items += self._num_frame_items
            self._start_frame()
        self._is_due.set()

    def make_due(self) -> None:
        """Let `next` return soon, if need be with an empty frame."""
        self._is_due.set()

    async def next(self) -> FrameT:
        """The oldest frame, once it holds an item or `make_due` was called."""
        await self._is_due.wait()
        if self._complete:
            frame, num_items = self._complete.popleft()
            self._num_complete_items -= num_items
        else:
            frame = self.frame
            self._start_frame()
        if len(self) == 0:
            self._is_due.clear()
        return frame

    def clear(self) -> None:
        """Drop what waits."""
        self._complete.clear()
        self._num_complete_items = 0
        self._start_frame()
        self._is_due.clear()

    def _start_frame(self) -> None:
        self.frame = self._new_frame()
        self._num_frame_items = self._frame_size = 0
