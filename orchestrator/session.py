"""One request as a task: the machine's commands are carried out, it gets the events, its chunks go to the client.

What a round is, and what follows from what, is in orchestrator/rounds/machine.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from orchestrator.answers.chunk_queue import ChunkQueue
from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.rounds.commands import Event, StepWritten
from orchestrator.rounds.machine import RoundMachine
from pilotfish.speculation.statistics import SpeculationStats


class Session:
    """See the module."""

    def __init__(self, machine: RoundMachine, exchange: ReplicaExchange, *, max_unread_tokens: int) -> None:
        """max_unread_tokens: committed tokens that the client has not taken before the request waits for it."""
        self.sequence = machine.sequence
        self.target = machine.target
        self.drafter = machine.drafter
        self.steps = machine.steps
        self._machine = machine
        self._exchange = exchange
        self.chunks = ChunkQueue(max_unread_tokens, on_awaited=exchange.hurry)
        """What the client has not taken."""

    @property
    def speculation_stats(self) -> SpeculationStats:
        """How speculation went so far."""
        counted, limitation = self.sequence.statistics, self._machine.controller.limitation
        limitation = self.steps.limitation if self.steps.limitation.reason else limitation
        return SpeculationStats(
            num_rounds=counted.num_rounds,
            num_draft_tokens=counted.num_draft_tokens,
            num_accepted_tokens=counted.num_accepted_tokens,
            num_plain_tokens=self.sequence.num_plain_tokens,
            num_grammar_draft_tokens=self.sequence.num_grammar_draft_tokens,
            num_grammar_accepted_tokens=self.sequence.num_grammar_accepted_tokens,
            mean_acceptance_length=counted.mean_acceptance_length,
            acceptance_per_position=counted.acceptance_per_position,
            num_rounds_by_draft_tokens=dict(self._machine.controller.num_rounds_by_k),
            num_missed_deadlines=self.drafter.num_missed_deadlines,
            reason=limitation.text,
            reason_id=limitation.reason or "",
            num_steps=self.steps.num_steps,
            num_accepted_steps=self.steps.num_accepted_steps,
            num_step_tokens=self.sequence.num_step_tokens,
            drafter_version=self._machine.controller.acceptance.drafter_version,
        )

    @property
    def has_more_at_hand(self) -> bool:
        """Whether the next chunk comes without waiting."""
        return self.chunks.has_chunks or self._exchange.has_verdicts

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ChunkQueue]:
        """The answer as it comes. Leaving the block ends the request and frees everything."""
        task = asyncio.create_task(self._run())
        try:
            yield self.chunks
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        machine = self._machine
        error: Exception | None = None
        try:
            self.steps.prepare(self.sequence)
            progress = machine.start(time.monotonic())
            while True:
                self._exchange.run(progress.commands)
                if self.sequence.is_finished:
                    self._close()  # a slow reader keeps no place
                for chunk in progress.chunks:
                    await self.chunks.put(chunk)
                if self.sequence.is_finished:
                    break
                progress = machine.on_event(await self._next(), time.monotonic())
        except Exception as failure:
            error = failure
        finally:
            try:
                self._close()
            finally:
                self.chunks.end(error)

    async def _next(self) -> Event:
        if self._machine.awaits_step:
            return StepWritten(await self.steps.next(self.sequence))
        # What comes while the client's writer is busy goes to it together.
        return await self._exchange.next(0 if self.chunks.is_awaited else self._machine.num_idle_tokens)

    def _close(self) -> None:
        try:
            self._exchange.run(self._machine.close())
        finally:
            self._exchange.close()
            self.steps.close()
