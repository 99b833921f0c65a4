"""How far a benchmark is, on the terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from pilotfish.bench.suite import SuiteProgress


class BenchProgress(SuiteProgress):
    """One bar over all answers, with what is going on beside it; plain lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bars = Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, num_answers: int) -> None:
        """A suite begins that measures so many answers."""
        self._task = self._bars.add_task("", total=num_answers)
        if self._console.is_terminal:
            self._bars.start()

    def doing(self, what: str) -> None:
        """What it is busy with from now on."""
        self._bars.update(self._task, description=what)
        if not self._console.is_terminal:
            self._console.print(what, markup=False, soft_wrap=True)

    def advance(self) -> None:
        """One answer is there."""
        self._bars.advance(self._task)
