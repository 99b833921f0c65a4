"""Replicas that compute, step by step, what sequences ask of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.emulation.profiles import StepCost
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.scheduler import PREFILL_SHARE
from pilotfish.messages import CloseSequence, Command
from pilotfish.types import LoadReport
from tests.support.simulated_stack.task import Task
from tests.support.simulated_stack.world import World

_NS = 1e9
"""In a second."""


@dataclass(slots=True)
class Rows:
    """What one sequence has in a step."""

    sequence_id: int
    task: Task
    num_rows: int
    is_prefill: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether the step brings an output token: not beside the first rows of a prompt."""
        return not self.is_prefill or self.num_rows == self.task.num_prompt_rows


class Replica:
    """Steps back to back over whatever is ready."""

    def __init__(self, world: World, cost: StepCost, max_rows: int) -> None:
        self._costs = StepCosts.sampled(cost.step_s, max_rows)
        self.load = LoadReport(step_table=self._costs.table)
        """Of the last step."""
        self._prefill_ns = 0.0
        """Of all steps."""
        self._num_steps = 0
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
        batch = self._next_batch()
        self._is_busy = bool(batch)
        if batch:
            num_rows = sum(rows.num_rows for rows in batch)
            step_s = self._world.step_s(self._cost.step_s(len(batch), num_rows))
            self._world.after(step_s, lambda: self._finish(batch, self._measure(batch, step_s)))

    def _next_batch(self) -> list[Rows]:
        """What decodes comes first, and leaves a share of the step to prompts, which take what they get."""
        prompts = {number: task for number, task in self._tasks.items() if task.num_prompt_rows}
        budget = self._max_rows
        reserved = int(PREFILL_SHARE * budget) if prompts else 0
        limit = self._max_decode_rows(budget - reserved)
        batch: list[Rows] = []
        for sequence_id, task in self._tasks.items():
            if sequence_id not in prompts and task.num_rows <= limit:
                batch.append(Rows(sequence_id, task, task.num_rows))
                budget -= task.num_rows
                limit -= task.num_rows
        for sequence_id, task in prompts.items():
            if budget:
                num_rows = min(task.num_prompt_rows, budget)
                batch.append(Rows(sequence_id, task, num_rows, is_prefill=True))
                budget -= num_rows
        return batch

    def _max_decode_rows(self, num_rows: int) -> int:
        """Of the step, which has room for num_rows."""
        return num_rows

    def _measure(self, batch: Sequence[Rows], step_s: float) -> LoadReport:
        num_decoding = sum(1 for rows in batch if not rows.is_prefill)
        num_rows = sum(rows.num_rows for rows in batch)
        num_prefill_rows = sum(rows.num_rows for rows in batch if rows.is_prefill)
        self._prefill_ns += self._costs.add(num_rows, num_prefill_rows, step_s * _NS)
        self._num_steps += 1
        return LoadReport(
            num_sequences_decoding=num_decoding,
            num_step_tokens=num_rows,
            step_time_ns=round(step_s * _NS),
            prefill_time_ns=round(self._prefill_ns),
            num_steps=self._num_steps,
            step_table=self._costs.table,
        )

    def _finish(self, batch: Sequence[Rows], load: LoadReport) -> None:
        """The step is over."""
        self.load = load
        for rows in batch:
            sequence_id, task = rows.sequence_id, rows.task
            is_answered = rows.is_answered
            if rows.is_prefill:
                task.num_prompt_rows -= rows.num_rows
            if not is_answered:
                continue
            task.num_steps -= 1
            # Whoever was served goes to the end of the queue.
            is_open = self._tasks.pop(sequence_id, None) is task
            if is_open and task.num_steps:
                self._tasks[sequence_id] = task
            if task.answers_each_step or task.num_steps == 0:
                self._world.deliver(task.resume)
        self._start()


class DelayingTarget(Replica):
    """Waits for sequences that come back soon, as the worker of a real engine does, by its code."""

    def __init__(self, world: World, cost: StepCost, max_rows: int) -> None:
        super().__init__(world, cost, max_rows)
        self._delay = BatchingDelay(self._costs, max_rows)
        self._num_looks = 0

    def submit(self, sequence_id: int, task: Task) -> None:
        self._take(sequence_id, task)
        self._arrive(task.command(sequence_id))

    def close(self, sequence_id: int) -> None:
        super().close(sequence_id)
        self._arrive(CloseSequence(sequence_id))

    def _arrive(self, command: Command) -> None:
        self._delay.took((command,), self._now_ns)
        if not self._is_busy:
            self._look()

    @property
    def _now_ns(self) -> int:
        return round(_NS * self._world.now_s)

    def _start(self) -> None:
        self._is_busy = False
        self._look()

    def _look(self) -> None:
        """Begin the step, or wait and look again."""
        self._num_looks += 1
        wait_ns = self._delay.wait_ns(self._now_ns) if self._tasks else 0
        if wait_ns > 0:
            number = self._num_looks
            self._world.after(wait_ns / _NS, lambda: self._look_again(number))
        else:
            super()._start()

    def _look_again(self, number: int) -> None:
        if number == self._num_looks:  # nothing has arrived
            self._look()

    def _max_decode_rows(self, num_rows: int) -> int:
        max_rows = self._delay.max_rows(self._now_ns)
        return num_rows if max_rows is None else min(num_rows, max_rows)

    def _finish(self, batch: Sequence[Rows], load: LoadReport) -> None:
        self._delay.gave([rows.task.verdict(rows.sequence_id) for rows in batch if rows.is_answered], self._now_ns)
        super()._finish(batch, load)
