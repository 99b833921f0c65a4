"""A drafter that is waited for, where no round machine carries its commands out."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.answers.sequence import Sequence
from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.rounds.commands import Command
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient

_MAX_UNREAD = 512
"""Messages of the drafter that wait: one for each question, those of missed rounds included."""


class AwaitedDrafter:
    """One per request; close it."""

    def __init__(self, make: Callable[[list[Command]], DrafterClient]) -> None:
        """make: makes the drafter, given the list for its commands."""
        self._out: list[Command] = []
        self.drafter = make(self._out)
        self._exchange = ReplicaExchange(None, acquire_timeout_s=0, max_unread=_MAX_UNREAD)

    @property
    def unavailable_reason(self) -> str:
        """Why drafts cannot be had now; empty if they can."""
        return self.drafter.unavailable_reason

    def prepare(self, sequence: Sequence) -> None:
        """Begin to read the prompt, while the target does."""
        self.drafter.prepare(sequence, time.monotonic())
        self.flush()

    async def propose(self, sequence: Sequence, num_tokens: int) -> Draft:
        """A draft of at most num_tokens tokens that continues the committed ones. Raises nothing but cancellation."""
        draft = self.drafter.ask(sequence, num_tokens, time.monotonic())
        while draft is None:
            self.flush()
            draft = self.drafter.hear(await self._exchange.next(), sequence, time.monotonic())
        self.flush()
        return draft

    def rewind(self, length: int) -> None:
        """Forget what followed length committed tokens: it was speculative."""
        self.drafter.rewind(length)
        self.flush()

    def close(self) -> None:
        """Free the place on the replica. Idempotent; it is opened again when it is needed."""
        self.drafter.close()
        self.flush()
        self._exchange.close()

    def flush(self) -> None:
        """Carry the drafter's commands out."""
        self._exchange.run(self._out)
        self._out.clear()
