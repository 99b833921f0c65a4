"""Waiting on an event loop with the precision of the kernel's timers.

asyncio and uvloop round what they wait for up to whole milliseconds; a draft step of emulated hardware takes half
of one. A timerfd becomes readable some tens of microseconds after its time, and costs no thread; where that matters
it is set early and the rest is spun away.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

_TFD_NONBLOCK, _TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
SPIN_NS = 120_000
"""About how late a timerfd wakes an idle process (measured: 50 us after 0.5 ms, 100 to 150 us after 8 ms)."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class StepTimer:
    """One waiter at a time, on the event loop that it was made on."""

    def __init__(self) -> None:
        """Raises OSError when there are too many open files."""
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "no timer can be had")
        self._spec = _TimerSpec()
        self._loop.add_reader(self._descriptor, self._on_time)

    async def sleep_until(self, deadline_ns: int, *, spin: bool = False) -> None:
        """Returns at `deadline_ns` of time.monotonic_ns(), or at once (after a turn of the loop) if it has passed.

        spin: to the microsecond, at the price of up to SPIN_NS of this thread.
        """
        await self._wait_until(deadline_ns - SPIN_NS if spin else deadline_ns)
        while spin and time.monotonic_ns() < deadline_ns:
            pass

    async def _wait_until(self, deadline_ns: int) -> None:
        if deadline_ns <= time.monotonic_ns():
            await asyncio.sleep(0)
        else:
            self._arm(deadline_ns)
            self._waiter = self._loop.create_future()
            await self._waiter

    def wake(self) -> None:
        """End the wait there is now, if any."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Idempotent. Who still waits is left waiting: cancel it."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _arm(self, deadline_ns: int) -> None:
        value = self._spec.value
        value.seconds, value.nanoseconds = divmod(deadline_ns, 1_000_000_000)
        if self._libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None) < 0:
            raise OSError(ctypes.get_errno(), "a timer cannot be set")

    def _on_time(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return  # of a waiter that was cancelled, and set again since
        self.wake()
