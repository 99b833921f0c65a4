"""What a controller decides before a round is over (decision 0010)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.control.decision import Decision


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What follows the round under way if nothing special happens in it."""

    decision: Decision
    gate_state: int
    """In which it was foreseen: in another one it does not hold."""
