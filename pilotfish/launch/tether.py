"""`python -m pilotfish.launch.tether PID MODULE ...`: runs a module that ends when process PID, its parent, does.

The kernel sends it SIGTERM then (Linux; elsewhere the module simply runs). The parent cannot ask for
this on the child's behalf without running Python between fork and exec, which is unsafe beside the
threads of gRPC.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tethered(module: str, *arguments: str) -> list[str]:
    """The command line of a module that ends when this process does, killed or not."""
    # -u: ready lines must not wait in a buffer.
    return [sys.executable, "-u", "-m", __spec__.name, str(os.getpid()), module, *arguments]


def tether(parent_pid: int) -> None:
    """Ask for SIGTERM when the parent ends; leave at once if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        sys.exit(f"the parent, process {parent_pid}, has ended")


def main() -> None:
    """Tether this process, then become the module."""
    _, parent_pid, module, *arguments = sys.argv
    tether(int(parent_pid))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
