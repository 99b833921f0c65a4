"""A tethered module runs as itself and ends with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

MODULE = "import sys, time; print(__name__, *sys.argv[1:], flush=True); time.sleep(60)"
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "pilotfish.launch.tether", str(os.getpid()), "sleeper", "x"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def search_path(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sleeper.py").write_text(MODULE)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_it_ends_when_its_parent_is_killed(search_path: dict[str, str]) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=search_path, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout as output:
        child = psutil.Process(int(output.readline()))
        assert output.readline() == "__main__ x\n"
        parent.send_signal(signal.SIGKILL)
        psutil.wait_procs([child], 20)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_it_does_not_start_without_its_parent(search_path: dict[str, str]) -> None:
    argv = [sys.executable, "-m", "pilotfish.launch.tether", "1", "sleeper"]
    ended = subprocess.run(argv, env=search_path, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "has ended" in ended.stderr
