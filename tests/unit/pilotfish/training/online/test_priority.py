"""A process that yields to others does so whatever Linux divides the processor by."""

import subprocess
import sys

import pytest

NOT_ALLOWED = 77
PROGRAM = """
import os
from pathlib import Path
from pilotfish.training.online.priority import yield_to_others

yield_to_others()
group = Path("/proc/self/autogroup")
print(os.getpriority(os.PRIO_PROCESS, 0), group.read_text() if group.exists() else "")
"""


def nice_values(*, has_own_session: bool) -> tuple[int, int | None]:
    """Of a process that yielded, and of its session: None where Linux does not divide by sessions."""
    command = [sys.executable, "-c", PROGRAM]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, start_new_session=has_own_session)
    own, *group = told.stdout.split()
    return int(own), int(group[-1]) if group else None


@pytest.mark.parametrize("has_own_session", [True, False])
def test_a_process_yields_whatever_its_session(has_own_session: bool) -> None:
    assert nice_values(has_own_session=has_own_session)[0] == 19


def test_a_process_yields_whatever_its_parent_has() -> None:
    raised = f"""
import os, sys
try:
    os.nice(-5)
except PermissionError:
    sys.exit({NOT_ALLOWED})
{PROGRAM}"""
    told = subprocess.run([sys.executable, "-c", raised], stdout=subprocess.PIPE, text=True, start_new_session=True)
    if told.returncode == NOT_ALLOWED:
        pytest.skip("needs the right to raise a priority")
    assert told.stdout.split()[0] == "19"


def test_a_session_of_its_own_yields_as_a_whole() -> None:
    _, session = nice_values(has_own_session=True)
    if session is None or not sessions_can_yield():
        pytest.skip("Linux does not divide the processor by sessions here, or lets nobody change how")
    assert session == 19


def sessions_can_yield() -> bool:
    """Whether a process may say so: where /proc is read-only, as in many containers, it may not."""
    program = "from pathlib import Path; Path('/proc/self/autogroup').write_text('19')"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, stderr=subprocess.DEVNULL, start_new_session=True, check=False).returncode == 0


def test_a_session_that_others_share_keeps_its_share() -> None:
    _, session = nice_values(has_own_session=False)
    assert session != 19
