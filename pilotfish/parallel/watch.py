"""Ends a process whose group has lost a member: none can go on without it, nor be made to stop waiting for it.

Torch-free.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, Protocol


class Line(Protocol):
    """Connections to other ranks."""

    def wait_for_loss(self, timeout_s: float | None = None) -> list[int]:
        """Ranks that have hung up, after waiting for one to (None: as long as it takes). Reads nothing."""


def end_process(message: str) -> NoReturn:
    """Say why on standard error, and end at once: a collective operation would wait on, and exit handlers with it."""
    print(message, file=sys.stderr, flush=True)
    os._exit(1)


def watch(line: Line, on_loss: Callable[[list[int]], None]) -> threading.Thread:
    """Call on_loss, from a thread of its own, as soon as a rank hangs up."""
    thread = threading.Thread(target=lambda: on_loss(line.wait_for_loss()), name="rank watch", daemon=True)
    thread.start()
    return thread
