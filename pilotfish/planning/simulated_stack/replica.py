"""Replicas that compute, step by step, what sequences ask of them."""

from __future__ import annotations

from pilotfish.engine.gathering import StepGathering
from pilotfish.messages import CloseSequence, Command
from pilotfish.planning.simulated_stack.task import Task
from pilotfish.planning.simulated_stack.world import World
from pilotfish.profiles import StepCost
from pilotfish.types import LoadReport

_NS = 1e9
"""In a second."""


Batch = list[tuple[int, Task]]
"""Tasks of a step, each with its sequence's id."""


class Replica:
    """Steps back to back over whatever is ready."""

    def __init__(self, world: World, cost: StepCost, max_rows: int) -> None:
        self.load = LoadReport()
        """Of the last step."""
        self._world = world
        self._cost = cost
        self._max_rows = max_rows
        self._tasks: dict[int, Task] = {}
        self._is_busy = False

    def submit(self, sequence_id: int, task: Task) -> None:
        """The task arrives; it extends the sequence's run if that is not over."""
        self._take(sequence_id, task)
        if not self._is_busy:
            self._start()

    def close(self, sequence_id: int) -> None:
        """The sequence has ended."""
        self._tasks.pop(sequence_id, None)

    def _take(self, sequence_id: int, task: Task) -> None:
        run = self._tasks.setdefault(sequence_id, task)
        if run is not task:
            run.extend(task)

    def _start(self) -> None:
        batch, num_rows = [], 0
        for sequence_id, task in self._tasks.items():
            if num_rows + task.num_rows <= self._max_rows:
                batch.append((sequence_id, task))
                num_rows += task.num_rows
        self._is_busy = bool(batch)
        if batch:
            step_s = self._world.step_s(self._cost.step_s(len(batch), num_rows))
            self._world.after(step_s, lambda: self._finish(batch, num_rows, step_s))

    def _finish(self, batch: Batch, num_rows: int, step_s: float) -> None:
        self.load = LoadReport(
            num_sequences_decoding=len(batch), num_step_tokens=num_rows, step_time_ns=round(step_s * _NS)
        )
        for sequence_id, task in batch:
            task.num_steps -= 1
            # Whoever was served goes to the end of the queue.
            is_open = self._tasks.pop(sequence_id, None) is task
            if is_open and task.num_steps:
                self._tasks[sequence_id] = task
            if task.answers_each_step or task.num_steps == 0:
                self._world.deliver(task.resume)
        self._start()


class GatheringTarget(Replica):
    """Waits for sequences that come back soon, as the worker of a real engine does, by its code."""

    def __init__(self, world: World, cost: StepCost, max_rows: int) -> None:
        super().__init__(world, cost, max_rows)
        self._gathering = StepGathering(max_rows)
        self._arrived: list[Command] = []
        self._num_arrivals = 0

    def submit(self, sequence_id: int, task: Task) -> None:
        self._take(sequence_id, task)
        self._arrive(task.command(sequence_id))

    def close(self, sequence_id: int) -> None:
        super().close(sequence_id)
        self._arrive(CloseSequence(sequence_id))

    def _arrive(self, command: Command) -> None:
        self._arrived.append(command)
        if not self._is_busy:
            self._gather(is_seen=True)

    @property
    def _now_ns(self) -> int:
        return round(_NS * self._world.now_s)

    def _start(self) -> None:
        self._is_busy = False
        self._gather(is_seen=False)

    def _gather(self, *, is_seen: bool) -> None:
        self._gathering.took(self._arrived, self._now_ns, is_seen=is_seen)
        self._arrived = []
        self._num_arrivals += 1
        wait_ns = self._gathering.wait_ns(self._now_ns) if self._tasks else 0
        if wait_ns > 0:
            number = self._num_arrivals
            self._world.after(wait_ns / _NS, lambda: self._give_up(number))
        else:
            super()._start()

    def _give_up(self, num_arrivals: int) -> None:
        if num_arrivals == self._num_arrivals:
            self._gathering.give_up(self._now_ns)
            super()._start()

    def _finish(self, batch: Batch, num_rows: int, step_s: float) -> None:
        load = LoadReport(num_step_tokens=num_rows, step_time_ns=round(step_s * _NS))
        verdicts = [task.verdict(sequence_id) for sequence_id, task in batch]
        self._gathering.gave(verdicts, load, self._now_ns)
        super()._finish(batch, num_rows, step_s)
