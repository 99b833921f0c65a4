"""Bounds the work of each pass of the event loop, which then looks at what has come in."""

from __future__ import annotations

import asyncio
from collections import deque


class LoopTurns:
    """Grants turns first come, first served, so many in each pass of the event loop. Holds nobody up while idle."""

    def __init__(self, turns_per_pass: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns_per_pass = turns_per_pass
        self._num_left = turns_per_pass
        self._is_refill_due = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Take one, now if that is possible."""
        if not self.take_free():
            await self.take()

    def take_free(self) -> bool:
        """Take a turn if one is free now."""
        if self._num_left == 0 or self._waiting:
            return False
        self._take()
        return True

    async def take(self) -> None:
        """Wait for a turn, behind those who wait already."""
        turn = self._loop.create_future()
        self._waiting.append(turn)
        self._refill_soon()
        await turn  # cancelled, it is passed over

    def _take(self) -> None:
        self._num_left -= 1
        self._refill_soon()

    def _refill_soon(self) -> None:
        if not self._is_refill_due:
            self._is_refill_due = True
            self._loop.call_soon(self._refill)

    def _refill(self) -> None:
        self._is_refill_due = False
        self._num_left = self._turns_per_pass
        while self._waiting and self._num_left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._take()
