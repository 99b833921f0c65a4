"""A draft that a replica was asked for, and that is waited for."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.rounds.draft import Draft
from pilotfish.types import TreeRequest


@dataclass(slots=True)
class Ask:
    """See the module."""

    num_tokens: int
    asked_s: float
    deadline_s: float
    tree: TreeRequest | None = None
    """Shape that the draft may have; None: a chain."""
    num_openings: int = 0
    """Times that the sequence was opened for it."""

    def failed(self, problem: str, now_s: float) -> Draft:
        """The draft that comes of it when something goes wrong."""
        return Draft(elapsed_s=now_s - self.asked_s, problem=problem)
