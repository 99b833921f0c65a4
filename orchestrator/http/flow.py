"""When an HTTP connection is read: when its application has room, and in its turn."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from orchestrator.requests.stranger_share import StrangerShare

_CONNECTION_S = 0.00005
_REFUSAL_S = 0.0003
"""Loop time that a connection, once it is read, and an answer that is no work, take beside reading (measured)."""
_CREDIT_S = 0.002
"""Loop time for which a connection is read without waiting once a request of it was accepted: eight prompts of 200 kB
(measured)."""


class Flow(FlowControl):
    """A connection's flow control. What its client sends is not read while the application has enough, or while it is a
    stranger and others' turn: see `StrangerShare`."""

    def __init__(self, transport: asyncio.Transport, share: StrangerShare, address: str) -> None:
        super().__init__(transport)
        self._share = share
        self._address = address
        self._resume = self._go_on
        self._is_waiting = self._is_closed = False
        self._is_accepted = False
        self._unproven_s = 0.0
        """Spent since the last request that was accepted."""
        self._unbilled_s = _CONNECTION_S
        """Counts with the first that is read, which has waited: whoever opened many and sent nothing would take the
        share from all."""
        # uvloop begins to read after `connection_made`, paused or not.
        asyncio.get_running_loop().call_soon(self._wait)

    def pause_reading(self) -> None:
        is_paused, self.read_paused = self.read_paused, True
        if not is_paused and not self._is_waiting:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        is_paused, self.read_paused = self.read_paused, False
        if is_paused and not self._is_waiting:
            self._transport.resume_reading()

    def spend(self, time_s: float, *, has_more: bool = False) -> None:
        """The connection has cost so much of the loop's time; reading waits where that is too much. has_more: there is
        more to read at once, so that a stranger waits for its turn in any case."""
        if self._is_closed:
            return
        time_s, self._unbilled_s = time_s + self._unbilled_s, 0.0
        self._unproven_s += time_s
        self._share.spend(time_s)
        if not (self._is_accepted and self._unproven_s <= _CREDIT_S):
            self._wait(in_any_case=has_more)

    def accept(self) -> None:
        """A request was accepted."""
        self._share.spend(-self._unproven_s)
        self._unproven_s = 0.0
        self._is_accepted = True
        if self._is_waiting:
            self._share.leave(self._address, self._resume)
            self._go_on()

    def refuse(self) -> None:
        """A request was refused."""
        self._is_accepted = False
        self.pass_over()

    def pass_over(self) -> None:
        """A request was answered that says nothing about its client, such as one for the server's state."""
        self.spend(_REFUSAL_S)

    def close(self) -> None:
        """The connection is closed. Idempotent."""
        self._is_closed = True
        self._share.leave(self._address, self._resume)

    def _wait(self, *, in_any_case: bool = False) -> None:
        is_over = self._is_closed or self._is_waiting
        if is_over or not self._share.wait(self._address, self._resume, in_any_case=in_any_case):
            return
        self._is_waiting = True
        if not self.read_paused:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        self._is_waiting = False
        if not self.read_paused and not self._is_closed:
            self._transport.resume_reading()
