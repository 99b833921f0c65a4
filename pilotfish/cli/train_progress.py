"""How far a training run is, on the terminal."""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pilotfish.training.request import Stage, Watcher

_LINES_EACH_STAGE = 10
"""Lines of plain output, where there is no terminal to draw bars on."""


class TrainProgress(Watcher):
    """A bar with the time left for each stage; plain lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            # The time left is estimated from the last minutes: stages run for hours.
            speed_estimate_period=300,
        )
        self._stage: Stage | None = None
        self._task = TaskID(0)
        self._total = 0.0
        self._next_line = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def stage(self, stage: Stage, total: float, done: float = 0) -> None:
        self._stage = stage
        self._total = total
        self._next_line = 0.0
        self._task = self._bars.add_task(stage.value, total=total, note="")
        self._bars.update(self._task, completed=done)

    def progress(self, done: float, note: str = "") -> None:
        self._bars.update(self._task, completed=done, note=note)
        share = min(1.0, done / self._total) if self._total else 1.0
        if not self._console.is_terminal and share >= self._next_line:
            self._next_line = min(1.0, share + 1 / _LINES_EACH_STAGE) if share < 1 else inf
            self._console.print(f"{self._stage}: {share:.0%} {note}".rstrip(), markup=False, soft_wrap=True)
