"""What a controller decides before a round is over, and the round that it learns from afterwards (decision 0010)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.control.decision import Decision, Observation


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What follows the round under way if nothing special happens in it."""

    decision: Decision
    gate_state: int
    """In which it was foreseen: in another one it does not hold."""


@dataclass(frozen=True, slots=True)
class Unlearned:
    """A round that is over, and taught nothing yet: the decision after it may not wait for that."""

    observation: Observation
    num_rows: float
    """Rows of each sequence on the replica, when the round was over."""
