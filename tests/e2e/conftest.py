"""Real processes with the real default model: `pilotfish up`, watched from outside."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

START_TIMEOUT_S = 900.0
"""The first start on a machine compiles the kernels, beside the other tests, and two slow cores take 150 s for five
engines under Ray."""
STOP_TIMEOUT_S = 60.0
UP = re.compile(r"Pilotfish is up on (?P<address>\S+)\.")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_reaches_children() -> None:
    """A test run in the background of a script ignores SIGINT, and its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class WatchedProcess:
    """A command and everything below it."""

    def __init__(self, *command: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._seen: dict[int, psutil.Process] = {}

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                # Pytest shows it beside a test that fails. Not sys.stderr, which tests replace to read a command's.
                print(line, end="", file=sys.__stderr__)
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """The first line from number `after` on that matches; fails with all lines if none comes."""

        def found() -> re.Match[str] | None:
            matches = (re.search(pattern, line) for line in self.lines[after:])
            return next((match for match in matches if match), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or not self._reader.is_alive(), START_TIMEOUT_S)
            match = found()
        assert match is not None, f"no line {pattern!r} in:\n" + "\n".join(self.lines)
        return match

    def descendants(self) -> list[psutil.Process]:
        """Everything below it; what was seen once is remembered for `left`."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        self._seen.update({process.pid: process for process in below})
        return below

    def descendant(self, part: str) -> psutil.Process:
        """The one below it whose command line holds `part`."""
        (process,) = [each for each in self.descendants() if part in " ".join(each.cmdline())]
        return process

    def wait_for_descendant(self, part: str) -> None:
        """Until one whose command line holds `part` has started; the test's own timeout bounds it."""
        nothing = threading.Event()
        while True:
            for each in self.descendants():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if part in " ".join(each.cmdline()):
                        return
            nothing.wait(0.05)

    def left(self, timeout_s: float = 20.0) -> list[psutil.Process]:
        """Of all that was ever seen below it, what still runs after timeout_s."""
        _, alive = psutil.wait_procs(list(self._seen.values()), timeout_s)
        return [each for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def send(self, number: signal.Signals) -> None:
        """As a terminal, or whoever runs it, does."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.descendants()
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGINT, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Signal it and wait; returns its exit status."""
        self.send(number)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """For its end; returns its exit status."""
        try:
            return self.process.wait(timeout_s)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self._reader.join()


class CliProcess(WatchedProcess):
    """A `pilotfish` command."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(sys.executable, "-m", "pilotfish.cli", *arguments)


class UpProcess(CliProcess):
    """`pilotfish up`."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("up", "--set", "orchestrator.port=0", *arguments)

    @property
    def address(self) -> str:
        return self.wait_for(UP.pattern)["address"]


@pytest.fixture(scope="package")
def start_up(default_model: Path) -> Iterator[Callable[..., UpProcess]]:
    """Starts `pilotfish up` with arguments; what is still running at the end is stopped."""
    started: list[UpProcess] = []

    def start(*arguments: str) -> UpProcess:
        started.append(UpProcess(*arguments))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            up.stop()
