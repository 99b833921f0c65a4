"""A drafter that is asked by hand: what a session's machine and its exchange would do for one request."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.answers.sequence import Sequence
from orchestrator.replicas.exchange import Exchange
from orchestrator.rounds.commands import Command
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient


class AskedDrafter:
    """Make it within an event loop."""

    def __init__(self, make: Callable[[list[Command]], DrafterClient]) -> None:
        """make: given where the drafter is to put its commands."""
        self._out: list[Command] = []
        self.drafter = make(self._out)
        self._exchange = Exchange(None, acquire_timeout_s=0, max_unread=512)

    @property
    def unavailable_reason(self) -> str:
        return self.drafter.unavailable_reason

    @property
    def is_saturated(self) -> bool:
        return self.drafter.is_saturated

    def prepare(self, sequence: Sequence) -> None:
        self.drafter.prepare(sequence, time.monotonic())
        self.run()

    async def propose(self, sequence: Sequence, num_tokens: int) -> Draft:
        """Raises nothing but cancellation."""
        draft = self.drafter.ask(sequence, num_tokens, time.monotonic())
        while draft is None:
            self.run()
            draft = self.drafter.hear(await self._exchange.next(), sequence, time.monotonic())
        self.run()
        return draft

    async def read(self, sequence: Sequence) -> None:
        """One event that nobody waits for."""
        self.drafter.hear(await self._exchange.next(), sequence, time.monotonic())
        self.run()

    def close(self) -> None:
        self.drafter.close()
        self.run()
        self._exchange.close()

    def run(self) -> None:
        """Carry its commands out."""
        self._exchange.run(self._out)
        self._out.clear()
