"""Whether this machine's AMX tiles can be used: Linux must permit it, and kernels that use them must give the bits that
they should.

`python -m pilotfish.models.native.amx LIBRARY` is that trial, in a process of its own: an instruction that the
processor refuses ends only it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Linux, arch/x86/include/uapi/asm/prctl.h."""
TRIAL_TIMEOUT_S = 60.0
_PASSED = "passed"
_FAULT_SIGNALS = (signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
"""How a process ends by what it did itself; by others the machine's memory or its operator may have ended it."""
_DIFFERS = 3
"""Exit status of a trial that found other results."""


def request_tiles() -> str:
    """Ask Linux to let this process use tiles; returns why it does not, empty if it does. Cheap, and repeatable.

    Ask early: it refuses as long as any thread has a signal stack too small for tiles.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return "they need Linux on x86-64"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0:
        return ""
    number = ctypes.get_errno()
    if number == errno.ENOSPC:
        return "Linux refuses them, as a thread of this process has too small a signal stack"
    return f"Linux refuses them ({os.strerror(number)}): they need Linux 5.16, and a hypervisor that passes them on"


def tiles_fault(library: Path, record: Path) -> str:
    """Why this process cannot use a library's tiles; empty if it can. What the trial found of them is kept in the
    record; what else ended it is not."""
    if refusal := request_tiles():
        return refusal
    with contextlib.suppress(OSError):
        if kept := record.read_text(encoding="utf-8"):
            return "" if kept == _PASSED else f"{kept} (delete {record} to try again)"
    command = [sys.executable, "-m", __spec__.name, str(library)]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"their trial did not end: {error}"
    fault = _fault_of(trial)
    if trial.returncode not in (0, _DIFFERS, *(-number for number in _FAULT_SIGNALS)):
        return fault
    with contextlib.suppress(OSError):  # the next start tries again
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(fault or _PASSED, encoding="utf-8")
    return fault


def _fault_of(trial: subprocess.CompletedProcess[str]) -> str:
    if trial.returncode == 0:
        return ""
    if trial.returncode < 0:
        return f"a trial of them ended with {signal.Signals(-trial.returncode).name}"
    return (trial.stderr.strip().splitlines() or [f"a trial of them ended with {trial.returncode}"])[-1]


def main() -> None:
    """See the module."""
    if refusal := request_tiles():
        sys.exit(refusal)
    check = ctypes.CDLL(sys.argv[1]).pilotfish_check_tiles
    check.restype = ctypes.c_int64
    if count := check():
        print(f"{count} results of a trial differ from what they should be", file=sys.stderr)
        sys.exit(_DIFFERS)


if __name__ == "__main__":
    main()
