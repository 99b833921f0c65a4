"""Emulated engine cores in virtual time: the real intake, scheduler and batching, with steps of a hardware profile."""

from collections.abc import Callable
from functools import partial

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.profiles import StepCost
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.messages import Command, Event
from tests.support.simulated_stack.world import NS, World


class NoisyCost:
    """What steps take on a machine that disturbs them, once it is switched on. See StepCost.

    Contexts cost nothing: sequences without an end would slow down while they are measured.
    """

    def __init__(self, world: World, cost: StepCost) -> None:
        self.is_on = False
        self._world, self._cost = world, cost

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        del num_context_tokens
        seconds = self._cost.step_s(num_sequences, num_tokens)
        return self._world.step_s(seconds) if self.is_on else seconds


class Replica:
    """Steps back to back over whatever is ready. See EmulatedEngine, which has the clock of the machine."""

    def __init__(self, world: World, core: EmulatedCore, delay: BatchingDelay | None = None) -> None:
        """delay: waits for sequences that come back soon; None: nobody is waited for."""
        self.core = core
        self.load = core.load()
        """Of the last step."""
        self.listeners: dict[int, Callable[[Event], None]] = {}
        """Called when an event of the sequence has travelled."""
        self._world, self._delay = world, delay
        self._arrived: list[Command] = []
        self._is_busy = False
        self._num_looks = 0

    def submit(self, command: Command) -> None:
        """The command arrives; a step that is being computed does not see it."""
        if self._delay is not None:
            self._delay.took((command,), self._world.now_ns)
        self._arrived.append(command)
        if not self._is_busy:
            self._look()

    def _look(self) -> None:
        """Begin a step, or wait and look again."""
        self._num_looks += 1
        self._take()
        if not self.core.has_work:
            return
        wait_ns = 0.0 if self._delay is None else self._delay.wait_ns(self._world.now_ns)
        if wait_ns > 0:
            self._world.after(wait_ns / NS, partial(self._look_again, self._num_looks))
        else:
            self._step()

    def _look_again(self, number: int) -> None:
        if number == self._num_looks:  # nothing has arrived
            self._look()

    def _step(self) -> None:
        self._is_busy = True
        events = self.core.step(None if self._delay is None else self._delay.max_rows(self._world.now_ns))
        self._world.after(self.core.step_s, lambda: self._finish(events))

    def _finish(self, events: list[Event]) -> None:
        self._is_busy = False
        self._take()
        events = self.core.go_on(events)
        self.load = self.core.load()
        if self._delay is not None:
            self._delay.gave(events, self._world.now_ns)
        for event in events:
            self._world.deliver(partial(self._tell, event))
        self._look()

    def _take(self) -> None:
        commands, self._arrived = self._arrived, []
        for command in commands:
            self.core.submit(command)

    def _tell(self, event: Event) -> None:
        listener = self.listeners.get(event.sequence_id)
        if listener is not None:
            listener(event)
