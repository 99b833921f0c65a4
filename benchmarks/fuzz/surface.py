"""What every surface has in common: inputs that are made, mutated, kept where they showed something new, and run."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn, Protocol

HANG_S = 30.0
"""An input that takes longer hangs. Far above what any takes, on a machine that does five things at once."""
MAX_KEPT = 2000
"""Inputs in memory that are mutated further."""
MAX_KEPT_BYTES = 16_384
"""Of one."""
FRESH = 0.3
"""Share of inputs that are made anew."""
MAX_CRASHES = 20
"""Different ones, of a surface; then it ends."""


class Surface(Protocol):
    """One way into the product. An input is bytes, so that it can be kept and run again."""

    name: str

    def make(self, rng: random.Random) -> bytes:
        """A new input."""

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        """A variant of one input, with parts of another."""

    def size(self, data: bytes) -> int:
        """What it counts for: frames, bodies, ..."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """Around all `run`s."""

    async def run(self, data: bytes) -> set[str]:
        """What became of the input, as the product documents it. Anything that is raised is a crash."""


@dataclass
class Tally:
    """What a surface has shown."""

    name: str
    num_inputs: int = 0
    count: int = 0
    """In the surface's own unit."""
    ends: Counter[str] = field(default_factory=Counter)
    crashes: dict[str, Path] = field(default_factory=dict)
    """What was raised, and the input that is kept of it."""
    num_crashes: int = 0
    num_hangs: int = 0
    slowest_s: float = 0.0
    slowest: bytes = b""
    grown_mb: float = 0.0
    """By how much the process's peak has grown, from a tenth of the inputs to the end."""


class Corpus:
    """Inputs in a folder: what showed something new is mutated further, in later runs, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.inputs = [path.read_bytes() for path in sorted(folder.glob("seed-*"))][:MAX_KEPT]

    def add(self, data: bytes) -> None:
        if len(self.inputs) < MAX_KEPT and len(data) <= MAX_KEPT_BYTES:
            self.inputs.append(data)
            self.keep("seed", data)

    def keep(self, kind: str, data: bytes) -> Path:
        path = self._folder / f"{kind}-{hashlib.sha256(data).hexdigest()[:16]}"
        path.write_bytes(data)
        return path


async def fuzz(surface: Surface, seed: int, corpus: Corpus, *, count: int, until_s: float | None = None) -> Tally:
    """Run inputs until they count for `count`; with until_s, on time.monotonic(), until then instead."""
    rng, tally = random.Random(seed), Tally(surface.name)
    peak_mb = 0.0
    async with surface.running():
        while (tally.count < count) if until_s is None else (time.monotonic() < until_s):
            if rng.random() < FRESH or not corpus.inputs:
                data = surface.make(rng)
            else:
                data = surface.mutate(rng, rng.choice(corpus.inputs), rng.choice(corpus.inputs))
            await _run(surface, data, corpus, tally)
            tally.num_inputs += 1
            tally.count += surface.size(data)
            if tally.count * 10 < count:
                peak_mb = _peak_mb()
            if len(tally.crashes) >= MAX_CRASHES:
                break
    corpus.keep("slowest", tally.slowest)
    tally.grown_mb = _peak_mb() - peak_mb if peak_mb else 0.0
    return tally


async def replay(surface: Surface, data: bytes) -> set[str]:
    """Run one input again, and let what it raises through."""
    async with surface.running():
        return await _guarded(surface, data)


async def _run(surface: Surface, data: bytes, corpus: Corpus, tally: Tally) -> None:
    start_s = time.monotonic()
    try:
        ends = set(map(_kind, await _guarded(surface, data)))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        tally.num_crashes += 1
        tally.num_hangs += isinstance(error, TimeoutError)
        what = f"{type(error).__name__}{_place(error.__traceback__)}: {_kind(str(error))}"
        if what not in tally.crashes:
            tally.crashes[what] = corpus.keep("crash", data)
    else:
        if not ends <= tally.ends.keys():
            corpus.add(data)
        tally.ends.update(ends)
    elapsed_s = time.monotonic() - start_s
    if elapsed_s > tally.slowest_s:
        tally.slowest_s, tally.slowest = elapsed_s, data


async def _guarded(surface: Surface, data: bytes) -> set[str]:
    with _alarm(2 * HANG_S), logged_failures() as failures:
        try:
            async with asyncio.timeout(HANG_S):
                ends = await surface.run(data)
        except BaseException as error:
            if failures:
                raise LoggedFailure(failures[0]) from error
            raise
    if failures:
        raise LoggedFailure(failures[0])
    return ends


class LoggedFailure(Exception):
    """The product logged a traceback of its own: something that nobody had foreseen."""


@contextmanager
def logged_failures() -> Iterator[list[str]]:
    """Collects what is logged with a traceback meanwhile."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                error = record.exc_info[1]
                what = f"{type(error).__name__}{_place(error.__traceback__)}: {error}"
                found.append(f"{record.getMessage()}: {what}")

    handler = Collector()
    logging.getLogger().addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """For code that computes and never lets the loop have its turn."""

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


def _place(traceback: TracebackType | None) -> str:
    """The last line of the repository's own that is not of this folder."""
    found = ""
    while traceback is not None:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if (
            path.is_relative_to(Path.cwd())
            and path.parent != Path(__file__).parent
            and "site-packages" not in str(path)
        ):
            found = f" at {path.name}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def _kind(text: str) -> str:
    """Without numbers and quoted words: what is new about it."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`|-?\d[\d.,e+-]*", "_", text)[:160]


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
