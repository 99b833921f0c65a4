"""How much of the event loop's time those take of whom nothing has been accepted yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pilotfish.fair_queue import FairQueue

_SAVED_S = 0.25
"""Loop time that strangers have at once after a quiet while: a thousand first requests."""
_TURN_S = 0.0001
"""What a turn costs beside what is spent in it."""

_TURNS_PER_PASS = 8
"""Turns in one pass of the event loop: their cost is known only after them. Eight that send the smallest requests hold
the loop for some 15 ms."""

Resume = Callable[[], None]


class StrangerShare:
    """Strangers' share of the loop's time. A stranger is a connection of which no request was accepted, or whose last
    one was refused. Each spends the time that it costs; when the share is used up, they wait, in turns fair to
    addresses. What an accepted request cost is given back: it was work.

    For one event loop.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        """share: above 0, at most 1. clock: seconds."""
        self._share = share
        self._clock = clock
        self._left_s = _SAVED_S
        self._updated_s = clock()
        self._waiting: FairQueue[Resume] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def spend(self, time_s: float) -> None:
        """A stranger has cost so much, or, below 0, has proven to be none."""
        self._refill()
        self._left_s = min(self._left_s - time_s, _SAVED_S)
        if time_s < 0 and self._timer is not None:
            self._timer.cancel()  # it is for what was owed before
            self._timer = None
            self._set_timer()

    def wait(self, address: str, resume: Resume, *, in_any_case: bool = False) -> bool:
        """Call `resume` when it is the address's turn. False: it is, and nothing is called; in_any_case: it is not
        before the loop's next pass."""
        self._refill()
        if self._left_s > 0 and not self._waiting and not in_any_case:
            return False
        self._waiting.push(address, resume, 1.0)
        self._set_timer()
        return True

    def leave(self, address: str, resume: Resume) -> None:
        """Do not wait any more. Idempotent. resume: the very object that waits."""
        self._waiting.remove(address, resume)

    async def turn(self, address: str) -> None:
        """Returns in the address's turn."""
        begun = asyncio.Event()
        resume = begun.set
        if not self.wait(address, resume):
            return
        try:
            await begun.wait()
        finally:
            self.leave(address, resume)

    def _refill(self) -> None:
        now_s = self._clock()
        self._left_s = min(self._left_s + (now_s - self._updated_s) * self._share, _SAVED_S)
        self._updated_s = now_s

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, -self._left_s / self._share), self._grant)

    def _grant(self) -> None:
        self._timer = None
        self._refill()
        for _ in range(min(len(self._waiting), _TURNS_PER_PASS)):
            if self._left_s <= 0:
                break
            _, resume, _ = self._waiting.pop()
            self._left_s -= _TURN_S
            resume()
        self._set_timer()
