"""Asks a process of its own: importing torch takes seconds, and may end the process that does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

PROBE_TIMEOUT_S = 120.0


def ask_process(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON object that `python -m MODULE ARGUMENTS` ends its output with. Raises OSError, with its last words, if
    there is none."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"torch did not start within {PROBE_TIMEOUT_S:g} s") from None
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or [f"it ended with {result.returncode}"])[-1]
        raise OSError(last)
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer
