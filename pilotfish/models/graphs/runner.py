"""Records the steps of all shapes of an engine, and replays the one that a step fits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.attention import AttentionBackend, StaticAttention
from pilotfish.models.graphs.recorder import Recorder, Work
from pilotfish.models.graphs.rows import StaticRows, num_values
from pilotfish.models.graphs.shapes import Buckets, StepShape

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StaticStep:
    """The buffers of a shape, the attention over them, and what runs the model over both once it is recorded."""

    rows: StaticRows
    attention: StaticAttention
    replay: Work = field(init=False)


RunStep = Callable[[StaticStep], None]
"""Runs the model over a static step's buffers and writes what comes out to buffers of its own."""


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
    """See the module. Not thread-safe.

    Steps that fit no recorded shape (prefills, for one) are for the caller to run.
    """

    def __init__(
        self,
        run: RunStep,
        *,
        backend: AttentionBackend,
        buckets: Buckets,
        device: torch.device,
        recorder: Recorder,
    ) -> None:
        self._run = run
        self._backend = backend
        self._buckets = buckets
        self._device = device
        self._recorder = recorder
        self._recorded: dict[StepShape, StaticStep] = {}

    @property
    def num_shapes(self) -> int:
        """Shapes that `record` records."""
        return len(self._shapes())

    def attention_bytes(self, num_kinds: int) -> int:
        """Memory that the backend keeps for these shapes. num_kinds: of layers that attend differently."""
        return sum(self._backend.static_bytes(shape, num_kinds) for shape in self._shapes())

    def record(self) -> None:
        """Record every shape. What was recorded before is dropped. Writes to block 0 only."""
        self._recorded.clear()
        start_s = time.monotonic()
        shapes = self._shapes()
        memory = torch.zeros(max(map(num_values, shapes)), dtype=torch.int64, device=self._device)
        for shape in shapes:
            self._recorded[shape] = self._record(shape, memory)
        logger.info("recorded %d shapes of steps in %.1f s", len(shapes), time.monotonic() - start_s)

    def forget(self) -> None:
        """Drop what is recorded: the tensors that it reads or writes are others now."""
        self._recorded.clear()

    def replay(self, step: StepInput) -> StaticStep | None:
        """Run the step over the buffers of the shape that it fits; None, and nothing done, where there is none."""
        gathers = self._backend.gathers(step.slices)
        shape = self._buckets.find(step.slices, gathers=gathers)
        static = None if shape is None else self._recorded.get(shape)
        if static is None:
            return None
        if static.attention.has_short_window and any(part.tree is not None for part in step.slices):
            return None
        static.rows.fill(step)
        static.attention.plan(step.slices)
        static.replay()
        return static

    def _shapes(self) -> list[StepShape]:
        return self._buckets.shapes(gathers_all=self._backend.gathers(()))

    def _record(self, shape: StepShape, memory: torch.Tensor) -> StaticStep:
        rows = StaticRows.of(shape, memory)
        step = StaticStep(rows, self._backend.static(rows))
        example = _padding_step(shape)
        rows.fill(example)
        step.attention.plan(example.slices)
        step.replay = self._recorder.record(lambda: self._run(step))
        return step


def _padding_step(shape: StepShape) -> StepInput:
    """A step of the shape that touches nobody's blocks."""
    size, num_rows = shape.rows_each, shape.num_rows
    blocks = [0] * max(1, shape.num_key_blocks, size)
    slices = [SequenceSlice(index * size, size, 0, blocks) for index in range(shape.num_sequences)]
    positions = list(range(size)) * shape.num_sequences
    return StepInput([0] * num_rows, positions, slices, range(num_rows))
