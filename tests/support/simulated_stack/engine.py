"""An emulated engine that steps in virtual time, at the end of a network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pilotfish.emulation.core import EmulatedCore
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.messages import CloseSequence, Command, Event, Propose, Verdict
from tests.support.simulated_stack.world import NS, World

BYTES_PER_S = 1.25e9
"""10 Gbit/s. Of messages only features count."""


class Link:
    """One way between the orchestrator and a replica: bytes one after the other, and then the distance."""

    def __init__(self, world: World, one_way_s: float) -> None:
        self._world = world
        self._one_way_s = one_way_s
        self._free_s = 0.0

    def carry(self, message: Command | Event, action: Callable[[], None]) -> None:
        """Calls the action when the message has arrived."""
        features = message.features if isinstance(message, Propose | Verdict) else None
        num_bytes = 0 if features is None else len(features.data)
        self._free_s = max(self._world.now_s, self._free_s) + num_bytes / BYTES_PER_S
        self._world.after(self._free_s + self._one_way_s - self._world.now_s, action)


class SimulatedEngine:
    """As EmulatedEngine, with a World for a clock."""

    def __init__(self, world: World, core: EmulatedCore, one_way_s: float, delay: BatchingDelay | None = None) -> None:
        """delay: waits for sequences that come back soon; None: nobody is waited for."""
        self.core = core
        self.load = core.load()
        """Of the last step."""
        self._world, self._delay = world, delay
        self._up, self._down = Link(world, one_way_s), Link(world, one_way_s)
        self._listeners: dict[int, Callable[[Event], None]] = {}
        self._arrived: list[Command] = []
        self._sent_first: list[Event] = []
        self._is_busy = False
        self._num_looks = 0
        core.send_first = self._send_first

    def open(self, sequence_id: int, hear: Callable[[Event], None]) -> None:
        """Who takes the sequence's events from now on, in the orchestrator."""
        self._listeners[sequence_id] = hear

    def send(self, command: Command) -> None:
        """From the orchestrator."""
        if isinstance(command, CloseSequence):
            self._listeners.pop(command.sequence_id, None)
        self._up.carry(command, lambda: self._arrive(command))

    def _arrive(self, command: Command) -> None:
        self._arrived.append(command)
        if self._delay is not None:
            self._delay.took((command,), self._world.now_ns)
        if not self._is_busy:
            self._look()

    def _look(self) -> None:
        """Begin a step, or wait and look again."""
        self._num_looks += 1
        self._submit()
        if not self.core.has_work:
            return
        wait_ns = 0 if self._delay is None else self._delay.wait_ns(self._world.now_ns)
        if wait_ns > 0:
            self._world.after(wait_ns / NS, partial(self._look_again, self._num_looks))
            return
        self._is_busy = True
        events = self.core.step(None if self._delay is None else self._delay.max_rows(self._world.now_ns))
        self._world.after(self.core.step_s, lambda: self._finish(events))

    def _look_again(self, number: int) -> None:
        if number == self._num_looks:  # nothing has arrived
            self._look()

    def _finish(self, events: list[Event]) -> None:
        self._submit()
        events = self.core.go_on(events)
        self.load = self.core.load()
        if self._delay is not None:
            self._delay.gave([*self._sent_first, *events], self._world.now_ns)
        self._sent_first.clear()
        self._deliver(events)
        self._is_busy = False
        self._look()

    def _send_first(self, events: list[Event]) -> None:
        self._sent_first.extend(events)
        self._world.after(self.core.step_s, lambda: self._deliver(events))

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            self._down.carry(event, partial(self._world.handle, partial(self._hear, event)))

    def _hear(self, event: Event) -> None:
        if (hear := self._listeners.get(event.sequence_id)) is not None:
            hear(event)

    def _submit(self) -> None:
        arrived, self._arrived = self._arrived, []
        for command in arrived:
            self.core.submit(command)
