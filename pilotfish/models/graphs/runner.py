"""Records the steps of an engine by their number of rows, and replays the one that a step fits."""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.attention.rows import StepRows, StepShape, laid_out, num_tiles
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.recorder import GraphRecorder, Work, recorder_for
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)

MAX_ROWS = 512
"""Rows of the largest recorded step: beyond it the GPU computes for longer than the host takes to launch."""

RunRows = Callable[[StepRows], None]
"""Runs the model over rows and writes what comes out to buffers of its own."""


def recorded_sizes() -> tuple[int, ...]:
    """Numbers of rows up to MAX_ROWS: powers of two and, from 16 on, what lies halfway."""
    sizes = [1]
    while sizes[-1] < MAX_ROWS:
        power = 1 << (sizes[-1].bit_length() - 1)
        is_power = sizes[-1] == power
        sizes.append(power * 3 // 2 if is_power and power >= 16 else power * 2)
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """What is recorded."""

    sizes: tuple[int, ...]
    """Numbers of rows, ascending."""
    max_sequences: int
    max_context_tokens: int
    recorder: GraphRecorder | None = None
    """None: CUDA graphs."""


class StaticOutputs:
    """Where recorded steps leave what they compute: one place for all shapes, since one step runs at a time.

    A graph's own tensors would each take memory for good: the logits of the largest shape alone are tens of megabytes.
    Named buffers of max_rows rows, made when they are first written: before recording, in its warm-up.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._buffers: dict[str, Tensor] = {}

    def clear(self) -> None:
        """Forget the buffers: their widths may be others from now on."""
        self._buffers.clear()

    def write(self, name: str, value: Tensor) -> None:
        """Copy value [rows, width] to the first rows of a buffer."""
        buffer = self._buffers.get(name)
        if buffer is None:
            buffer = self._buffers[name] = value.new_zeros(self._max_rows, value.shape[1])
        buffer[: value.shape[0]].copy_(value)

    def read(self, name: str, num_rows: int) -> Tensor:
        """[num_rows, width]: a view, overwritten by the next step."""
        return self._buffers[name][:num_rows]


class GraphRunner:
    """See the module. Not thread-safe. Steps that fit no recorded size are for the caller to run."""

    def __init__(self, run: RunRows, plan: GraphPlan, *, num_key_heads: int, device: torch.device) -> None:
        self._run = run
        self._shapes = [StepShape.recorded(size, plan.max_sequences, num_key_heads) for size in plan.sizes]
        self._max_block_ids = plan.max_sequences * -(-plan.max_context_tokens // BLOCK_SIZE)
        self._device = device
        self._recorder = plan.recorder or recorder_for(device)
        self.outputs = StaticOutputs(plan.sizes[-1])
        """Buffers that `run` writes to."""
        self._recorded: list[tuple[StepRows, Work]] = []

    @property
    def is_recorded(self) -> bool:
        return bool(self._recorded)

    @property
    def num_shapes(self) -> int:
        """Shapes that `record` records."""
        return len(self._shapes)

    def record(self) -> None:
        """Record every shape. What was recorded before is dropped. Writes to block 0 only."""
        self.forget()
        self.outputs.clear()
        start_s = time.monotonic()
        size = max(shape.num_fixed_values for shape in self._shapes) + self._max_block_ids
        buffer = torch.zeros(size, dtype=torch.int64, device=self._device)
        # The largest first, so that the smaller ones find their memory in its.
        self._recorded = [self._record(StepRows.of(shape, buffer)) for shape in reversed(self._shapes)][::-1]
        logger.info("recorded %d sizes of steps in %.1f s", len(self._shapes), time.monotonic() - start_s)

    def forget(self) -> None:
        """Drop what is recorded: the tensors that it reads or writes are others now."""
        self._recorded.clear()

    def replay(self, step: StepInput, before: Callable[[], object] = lambda: None) -> bool:
        """Run the step over the buffers of the smallest size that holds it; False, and nothing done, without one.

        before: brings what else the recorded work reads.
        """
        for rows, replay in self._recorded:
            if rows.shape.num_rows >= len(step.token_ids):
                values = self._laid_out(step, rows.shape)
                if values is None:
                    return False
                rows.fill(values)
                before()
                replay()
                return True
        return False

    def _laid_out(self, step: StepInput, shape: StepShape) -> array[int] | None:
        if num_tiles(step, shape.tile_rows) > shape.num_tiles:
            return None
        values = laid_out(step, shape)
        return values if len(values) <= shape.num_fixed_values + self._max_block_ids else None

    def _record(self, rows: StepRows) -> tuple[StepRows, Work]:
        rows.fill(laid_out(_padding_step(rows.shape.num_rows), rows.shape))
        return rows, self._recorder.record(lambda: self._run(rows))


def _padding_step(num_rows: int) -> StepInput:
    """A step of the size that touches nobody's blocks."""
    zeros = [0] * num_rows
    return StepInput(zeros, zeros, [SequenceSlice(0, 1, 0, [0])], range(num_rows))
