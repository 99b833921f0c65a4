"""Children: their lines, their ends, and that none is left. Real processes, small ones."""

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import pytest

from pilotfish.config import environment
from pilotfish.errors import UnavailableError
from pilotfish.launch import supervisor as supervisor_module
from pilotfish.launch.supervisor import ChildSpec, Supervisor

pytestmark = pytest.mark.usefixtures("no_child_left")

SERVE = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("stopping", flush=True), sys.exit(0)))
print("NAME ready on 127.0.0.1:1 (model m)", flush=True)
while True: time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("NAME ready on 127.0.0.1:1", flush=True)
while True: time.sleep(60)
"""
FAIL = "import sys; print('error: no model here', file=sys.stderr); sys.exit(3)"
WITH_GRANDCHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("grandchild", child.pid, flush=True)
sys.exit(4)
"""


@dataclass
class Run:
    """A supervisor with what it said."""

    specs: list[ChildSpec]
    lines: list[tuple[str, str]] = field(default_factory=list)
    ready: list[tuple[str, str]] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    force: asyncio.Event = field(default_factory=asyncio.Event)
    when: Callable[["Run"], None] = lambda run: None

    async def run(self) -> None:
        def on_line(name: str, line: str) -> None:
            self.lines.append((name, line))
            self.when(self)

        def on_ready(service: str, address: str) -> None:
            self.ready.append((service, address))
            self.when(self)

        supervised = Supervisor(self.specs, environment=environment(), on_line=on_line, on_ready=on_ready)
        await supervised.run(self.stop, self.force)


def spec(name: str, script: str, *, essential: bool = True) -> ChildSpec:
    argv = [sys.executable, "-u", "-c", script.replace("NAME", name)]
    return ChildSpec(name=name, argv=argv, services=frozenset({name}), essential=essential)


def stop_when_ready(count: int) -> Callable[[Run], None]:
    return lambda run: run.stop.set() if len(run.ready) == count else None


async def test_stops_in_reverse_order_and_passes_lines_on() -> None:
    run = Run([spec("target", SERVE), spec("front", SERVE)], when=stop_when_ready(2))
    await run.run()
    assert sorted(run.ready) == [("front", "127.0.0.1:1"), ("target", "127.0.0.1:1")]
    assert [name for name, line in run.lines if line == "stopping"] == ["front", "target"]


async def test_a_child_starts_only_after_the_services_it_needs() -> None:
    front = dataclasses.replace(spec("front", SERVE), after=frozenset({"target"}))
    run = Run([spec("target", SERVE), front], when=stop_when_ready(2))
    await run.run()
    assert [service for service, _ in run.ready] == ["target", "front"]


async def test_an_essential_end_stops_the_others_and_carries_the_reason() -> None:
    run = Run([spec("target", FAIL), spec("front", SERVE)])
    with pytest.raises(UnavailableError, match=r"target ended with exit code 3: no model here"):
        await run.run()


@pytest.mark.parametrize(("healthy_s", "delays"), [(60.0, [0, 9]), (0.0, [0, 0])])
async def test_an_inessential_child_starts_again_after_a_wait_that_grows_unless_it_ran_for_long(
    monkeypatch: pytest.MonkeyPatch, healthy_s: float, delays: list[int]
) -> None:
    monkeypatch.setattr(supervisor_module, "RESTART_DELAYS_S", (0.0, 9.0))
    monkeypatch.setattr(supervisor_module, "HEALTHY_S", healthy_s)
    run = Run([spec("draft", FAIL, essential=False), spec("target", SERVE)])
    run.when = lambda run: run.stop.set() if sum("ended with" in line for _, line in run.lines) == 2 else None
    await run.run()
    told = "ended with exit code 3; requests go on without it, next start in {} s"
    assert [line for _, line in run.lines if "ended with" in line] == [told.format(delay) for delay in delays]


async def test_an_essential_child_that_was_ready_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "RESTART_DELAYS_S", (0.0,))
    script = "print('NAME ready on 127.0.0.1:1', flush=True); raise SystemExit(3)"
    run = Run([dataclasses.replace(spec("target", script), restarts_once_ready=True), spec("front", SERVE)])
    run.when = lambda run: run.stop.set() if sum("ended with" in line for _, line in run.lines) == 3 else None
    await run.run()
    assert ("target", "ended with exit code 3; requests wait for it, next start in 0 s") in run.lines


async def test_force_ends_a_child_that_ignores_sigterm() -> None:
    run = Run([spec("target", STUBBORN)], when=stop_when_ready(1))
    run.force.set()
    await run.run()


async def test_descendants_end_with_their_child() -> None:
    run = Run([spec("target", WITH_GRANDCHILD)])
    with pytest.raises(UnavailableError, match="exit code 4"):
        await run.run()
    pid = next(int(line.split()[1]) for _, line in run.lines if line.startswith("grandchild"))
    # Killed is not dead yet: a busy machine takes a while to get there, and nobody may be there to reap it.
    with contextlib.suppress(psutil.NoSuchProcess):
        grandchild = psutil.Process(pid)
        with contextlib.suppress(psutil.TimeoutExpired):
            grandchild.wait(timeout=5)
        assert grandchild.status() == psutil.STATUS_ZOMBIE


async def test_cancelling_leaves_no_child() -> None:
    ready = asyncio.Event()
    run = Run([spec("target", SERVE)], when=lambda run: ready.set() if run.ready else None)
    task = asyncio.create_task(run.run())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ("target", "stopping") in run.lines
