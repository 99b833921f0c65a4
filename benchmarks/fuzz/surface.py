"""What every surface has in common: Hypothesis makes its inputs, and whatever one raises, logs or hangs in is a crash.

Inputs come in batches, each on services that have just started. What fails is made small, kept in a folder, and run
first the next time.
"""

import asyncio
import logging
import re
import resource
import signal
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from logging.handlers import BufferingHandler
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
HANG_S = 30.0
"""An input that takes longer hangs. Far above what any takes, on a machine that does five things at once."""
BATCH = 1000
MAX_CRASHES = 20
"""Different ones, of a surface; then it ends."""


class Surface(Protocol):
    """One way into the product."""

    name: str
    inputs: SearchStrategy[Any]

    def running(self) -> AbstractAsyncContextManager[object]:
        """Around the `run`s of a batch."""

    async def run(self, data: Any) -> set[str]:
        """What became of the input, as the product documents it. Anything that is raised is a crash."""


class Crash(Exception):
    """Something that nobody had foreseen."""


@dataclass
class Tally:
    """What a surface has shown."""

    num_inputs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    crashes: dict[str, str] = field(default_factory=dict)
    """What was raised, with where, and the input."""
    slowest_s: float = 0.0
    peaks_mb: list[float] = field(default_factory=list)
    """Peak memory of the process, after each batch."""


def fuzz(surface: Surface, seed: int, folder: Path, *, count: int, until_s: float | None = None) -> Tally:
    """Run `count` inputs; with until_s, on time.monotonic(), as many as there is time for."""
    tally = Tally()
    with asyncio.Runner() as runner:
        for number in range(10**9):
            left = count - tally.num_inputs if until_s is None else BATCH
            is_late = until_s is not None and time.monotonic() >= until_s
            if left <= 0 or is_late or len(tally.crashes) >= MAX_CRASHES:
                return tally
            batch = _Batch(surface, runner, tally, until_s)
            try:
                batch.run(seed + number, min(BATCH, left), folder)
            finally:
                batch.stop()
            tally.peaks_mb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    raise AssertionError


class _Batch:
    """Some inputs on services that start with the first one, and again after a failure."""

    def __init__(self, surface: Surface, runner: asyncio.Runner, tally: Tally, until_s: float | None) -> None:
        self._surface, self._runner, self._tally, self._until_s = surface, runner, tally, until_s
        self._running: AbstractAsyncContextManager[object] | None = None

    def run(self, seed: int, count: int, folder: Path) -> None:
        """Every failure that is not the surface's end goes into the tally."""

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=count,
            database=DirectoryBasedExampleDatabase(folder),
            deadline=None,
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(self._surface.inputs)
        def run_all(data: Any) -> None:
            self._run_one(data)

        try:
            run_all()
        except unittest.SkipTest:
            return
        except BaseExceptionGroup as group:
            failures = group.exceptions
        except Exception as error:
            failures = (error,)
        else:
            return
        for failure in failures:
            what = _kind(f"{type(failure).__name__}: {failure}")
            self._tally.crashes.setdefault(what, "".join(traceback.format_exception(failure)))

    def _run_one(self, data: Any) -> None:
        if self._until_s is not None and time.monotonic() >= self._until_s:
            raise unittest.SkipTest("the time is up")  # which ends Hypothesis at once
        if self._running is None:
            self._running = self._surface.running()
            self._runner.run(self._running.__aenter__())
        start_s = time.monotonic()
        try:
            with _alarm(2 * HANG_S), _logged_failures() as failures:
                ends = self._runner.run(_bounded(self._surface.run(data)))
            if failures:
                raise Crash(logging.Formatter().format(failures[0]))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.stop()  # what is broken shall fail no other input
            if isinstance(error, Exception):
                raise
            raise Crash(repr(error)) from error  # a panic of a library in Rust
        self._tally.num_inputs += 1
        self._tally.ends.update(set(map(_kind, ends)))
        self._tally.slowest_s = max(self._tally.slowest_s, time.monotonic() - start_s)

    def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            with _alarm(2 * HANG_S):
                self._runner.run(running.__aexit__(None, None, None))


async def _bounded(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(HANG_S):
        return await work


@contextmanager
def _logged_failures() -> Iterator[list[logging.LogRecord]]:
    """Collects what the product logs with a traceback meanwhile."""
    handler = BufferingHandler(capacity=10**9)
    # gRPC tells of every frame that it cannot read.
    handler.addFilter(lambda record: bool(record.exc_info) and record.name.partition(".")[0] != "grpc")
    logging.getLogger().addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupts code that computes and never lets the loop have its turn."""

    def ring(_: int, frame: FrameType | None) -> NoReturn:
        where = "?" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        raise TimeoutError(f"computes for {seconds:g} s, at {where}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _kind(text: str) -> str:
    """Without numbers and quoted words: what is new about it."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`|-?\d[\d.,e+-]*", "_", text)[:160]
