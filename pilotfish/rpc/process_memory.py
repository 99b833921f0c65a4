"""The memory of a process that is a service."""

from __future__ import annotations

import ctypes
import gc

_M_MMAP_THRESHOLD = -3
"""glibc's name for the parameter, which only its header has."""
_LARGE_BYTES = 256 * 1024


def settle_memory() -> None:
    """Once a service is started: what a start makes stays, and what requests make goes.

    A garbage collection that looks through all of it holds the event loop for 0.1 s (measured). And glibc begins to
    keep large blocks for itself once one was freed: 64 clients that send nothing but prompts of 4 MB then make 110 MB
    instead of 70 (measured). Other C libraries stay as they are.
    """
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
