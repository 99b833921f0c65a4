"""Measures what an engine's steps cost, shape by shape: what `pilotfish profile` writes down.

Legend: B sequences in a step, T token rows over all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pilotfish.emulation.profiles import MeasuredCost
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.process.calibration import StepTimes
from pilotfish.messages import Propose

Progress = Callable[[int, int], None]
"""Called with the number of measurements done and to do."""

_DRAFT_TOKENS = 4
"""Steps of a proposal that is timed."""

Times = dict[tuple[int, int], float]
"""(B, T) -> seconds."""


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan:
    """What is measured, and how often."""

    num_sequences: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    num_tokens: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    samples: int = 9
    """Samples of each shape; their median counts."""
    context_tokens: int = 64
    """Context of each sequence."""
    long_context_tokens: int = 512
    """Context of each sequence where the cost of context is measured."""

    def within(self, core: Engine, max_batch_tokens: int) -> MeasurementPlan:
        """What the engine can do of it."""
        longest = core.model.max_context_tokens // 2
        long_context_tokens = min(self.long_context_tokens, longest)
        return replace(
            self,
            num_sequences=tuple(count for count in self.num_sequences if count <= core.limits.max_sequences),
            num_tokens=tuple(count for count in self.num_tokens if count <= min(max_batch_tokens, longest)),
            context_tokens=min(self.context_tokens, long_context_tokens // 2),
            long_context_tokens=long_context_tokens,
        )


class ShapeTimes(StepTimes):
    """Step times of proposals and prefills as well, and of sequences that have a context."""

    @contextmanager
    def opened(self, num_sequences: int, context_tokens: int, *, is_shared: bool = False) -> Iterator[list[int]]:
        """Opens that many idle sequences, whose context is in the KV cache, for as long as the block lasts.

        is_shared: whether their prompts are the same, so that it is computed once.

        Raises ConfigError where the engine refuses them, or has no room; none is left then.
        """
        sequence_ids = list[int]()
        try:
            for _ in range(num_sequences):
                sequence_ids.append(self.open(context_tokens, is_shared=is_shared))
                if is_shared and len(sequence_ids) == 1:
                    self.settle()
            self.settle()
            yield sequence_ids
        finally:
            for sequence_id in sequence_ids:
                self.close(sequence_id)
            while self.core.has_work:
                self.core.step()

    def draft_step_s(self, sequences: Sequence[int]) -> float:
        """Seconds of the steps of a proposal for all sequences, on average."""
        for sequence_id in sequences:
            self.lengths[sequence_id] += 1
            self.core.submit(Propose(sequence_id, self.lengths[sequence_id], (1,), _DRAFT_TOKENS))
        elapsed_s = sum(self.step_s() for _ in range(_DRAFT_TOKENS)) / _DRAFT_TOKENS
        self.settle()
        return elapsed_s

    def prefill_s(self, num_tokens: int) -> float:
        """Seconds of the step that computes a prompt's first num_tokens tokens."""
        sequence_id = self.open(num_tokens + 1)
        elapsed_s = self.step_s()
        self.settle()
        self.close(sequence_id)
        return elapsed_s


class CostMeasurement:
    """Measures one idle core. Raises ConfigError when it refuses a shape."""

    def __init__(
        self, core: Engine, plan: MeasurementPlan, progress: Progress, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._core = core
        self._plan = plan
        self._progress = progress
        self._timer = ShapeTimes(core, clock)
        self._num_done = self._num_all = 0

    def target(self) -> MeasuredCost:
        """Decodes, verifications as far as max_draft_tokens allow, prefill chunks beyond."""
        plan, timer = self._plan, self._timer
        longest = self._core.limits.max_draft_tokens + 1
        verified = [
            (b, t) for b in plan.num_sequences for t in plan.num_tokens if t % b == 0 and 1 <= t // b <= longest
        ]
        prefills = [t for t in plan.num_tokens if t > longest]
        self._expect(len(verified) + 2 * len(plan.num_sequences) + len(prefills))
        times: Times = {}
        slopes = []
        for batch in plan.num_sequences:
            with timer.opened(batch, plan.context_tokens) as sequences:
                for b, t in verified:
                    if b == batch:
                        times[b, t] = self._median(partial(timer.verify_s, sequences, t // b))
                short_s = self._median(partial(timer.verify_s, sequences, 1))
            with timer.opened(batch, plan.long_context_tokens) as sequences:
                long_s = self._median(partial(timer.verify_s, sequences, 1))
            slopes.append((long_s - short_s) / (batch * (plan.long_context_tokens - plan.context_tokens)))
        context_token_s = max(0.0, statistics.median(slopes))
        times = {(b, t): value - context_token_s * b * plan.context_tokens for (b, t), value in times.items()}
        times |= {(1, t): self._median(partial(timer.prefill_s, t)) for t in prefills}
        return _table(plan, times, context_token_s)

    def draft(self) -> MeasuredCost:
        """Draft steps, of a token for each sequence, and prefill chunks."""
        plan, timer = self._plan, self._timer
        prefills = [t for t in plan.num_tokens if t > max(plan.num_sequences)]
        self._expect(len(plan.num_sequences) + len(prefills))
        times: Times = {}
        for batch in plan.num_sequences:
            with timer.opened(batch, plan.context_tokens) as sequences:
                times[batch, batch] = self._median(partial(timer.draft_step_s, sequences))
        times |= {(1, t): self._median(partial(timer.prefill_s, t)) for t in prefills}
        return _table(plan, times, 0.0)

    def _expect(self, num_shapes: int) -> None:
        self._num_done = 0
        self._num_all = self._plan.samples * num_shapes

    def _median(self, measure: Callable[[], float]) -> float:
        values = []
        for _ in range(self._plan.samples):
            values.append(measure())
            self._num_done += 1
            self._progress(self._num_done, self._num_all)
        return statistics.median(values)


def _table(plan: MeasurementPlan, times: Times, context_token_s: float) -> MeasuredCost:
    """The whole grid. More rows never cost less: where a measurement says so, it is noise."""
    lines = []
    for b in plan.num_sequences:
        line = [0.0]
        for t in plan.num_tokens:
            # Fewer rows than sequences, which no step has, cost as many as there are sequences. What no batch can
            # verify is prefill, whose rows may as well be one sequence's.
            value = times.get((b, max(t, b)), times.get((1, t), 0.0))
            line.append(max(line[-1], round(value, 7)))
        lines.append(tuple(line[1:]))
    return MeasuredCost(
        num_sequences=plan.num_sequences,
        num_tokens=plan.num_tokens,
        step_times_s=tuple(lines),
        context_token_s=context_token_s,
    )
