"""Conversions of model files in a process of their own, so that the caller stays free of torch and its memory comes
back. Torch-free.

Where one fails for a reason that a user can mend, the last line of its stdout is `{"errno": ..., "message": ...}`,
errno null if it is the files' fault and not the system's, and its exit status 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from pilotfish.errors import ModelError, UnsupportedModelError

_SYSTEM_ERROR = re.compile(r"os error (\d+)")


def run_conversion(module: str, source: Path, *others: Path) -> None:
    """Run `python -m MODULE SOURCE OTHERS...`. Raises ModelError, UnsupportedModelError, OSError."""
    command = [sys.executable, "-m", module, *(str(path) for path in (source, *others))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        return
    try:
        report = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        last_line = (errors.strip().splitlines() or ["no message"])[-1]
        raise ModelError(f"conversion of {source.name} failed ({process.returncode}): {last_line}") from None
    if report["errno"] is None:
        raise UnsupportedModelError(report["message"])
    raise OSError(report["errno"], report["message"])


def report_failures(convert: Callable[[], None]) -> int:
    """The exit status of a conversion, which this process runs. Mutates stdout."""
    try:
        convert()
    except OSError as error:
        if error.errno is None:
            raise
        return _report(error.errno, str(error.strerror))
    except SafetensorError as error:  # the library's form of an OSError of writing
        if (match := _SYSTEM_ERROR.search(str(error))) is None:
            raise
        return _report(int(match[1]), str(error))
    except ModelError as error:
        return _report(None, str(error))
    return 0


def _report(errno: int | None, message: str) -> int:
    print(json.dumps({"errno": errno, "message": message}))
    return 1
