"""A child ends with the process that started it, and when it is told to."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pilotfish.child import Child, tethered

LINGER = "import sys, time; print('here', sys.stdin.read(), sys.argv[1:], flush=True); time.sleep(60)"
START_ANOTHER = """
import subprocess, sys, time
from pilotfish.child import tethered
subprocess.Popen(tethered("lingering"), stdin=subprocess.PIPE)
time.sleep(60)
"""
IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "lingering.py").write_text(LINGER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    before = psutil.Process().children()
    yield
    assert set(psutil.Process().children()) <= set(before)


def test_a_module_ends_when_its_standard_input_does_and_nothing_of_it_is_the_modules() -> None:
    with subprocess.Popen(tethered("lingering", "a", "b"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"here  ['a', 'b']\n"
        process.stdin.close()
        assert process.wait() == -signal.SIGTERM


def test_a_module_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", START_ANOTHER], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"here  []\n"
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
        child.wait(timeout=10)


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_a_child_that_ignores_its_end_is_killed_where_nobody_waits_any_more(loops: str) -> None:
    """In a process without other threads, as those that start children are: in the tests' own, among many threads, a
    child that uvloop had forked was now and then never heard."""
    program = f"""
import asyncio, {loops}
from tests.unit.pilotfish.test_child import stop_and_give_up
with asyncio.Runner(loop_factory={loops}.new_event_loop) as runner:
    runner.run(stop_and_give_up())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def stop_and_give_up() -> None:
    started = asyncio.Event()
    child = await Child.start([sys.executable, "-c", IGNORE], lambda *_: started.set())
    await started.wait()
    stopping = asyncio.create_task(child.stop(60))
    await asyncio.sleep(0)
    stopping.cancel()
    assert await child.wait() == -signal.SIGKILL
    await child.stop(0)


async def test_what_a_child_writes_without_lines_is_passed_on_in_parts() -> None:
    parts: list[str] = []
    program = "import sys; sys.stderr.write('x' * 1_000_000)"
    child = await Child.start([sys.executable, "-c", program], lambda line, _: parts.append(line))
    assert await child.wait() == 0
    assert "".join(parts) == "x" * 1_000_000
    assert len(parts) > 1
