"""Where ranks meet, and how one is started. Torch-free: a replica's front under Ray starts ranks, too."""

from __future__ import annotations

import sys
from pathlib import Path

MEETING_PREFIX = "pilotfish-ranks-"
"""Prefix of the temporary folder that holds a replica's socket and store while its ranks meet; private to its user."""
_RANK_MODULE = "pilotfish.parallel.rank"


def rank_command(folder: Path, rank: int) -> list[str]:
    """The process of a rank from 1 on, which meets rank 0 in the folder and ends with it."""
    return [sys.executable, "-m", _RANK_MODULE, "--folder", str(folder), "--rank", str(rank)]
