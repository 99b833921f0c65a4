"""A drafter that is asked by hand."""

from __future__ import annotations

import time

from orchestrator.answers.sequence import Sequence
from orchestrator.awaited_drafter import AwaitedDrafter


class AskedDrafter(AwaitedDrafter):
    """Make it within an event loop."""

    async def read(self, sequence: Sequence) -> None:
        """One event that nobody waits for."""
        self.drafter.hear(await self._exchange.next(), sequence, time.monotonic())
        self.flush()
