"""What the proposer counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotfish.speculation.statistics import AcceptanceStatistics


@dataclass(slots=True)
class ProposerCounters:
    """Counts since vLLM started. Each number is written by one thread."""

    acceptance: AcceptanceStatistics = field(default_factory=AcceptanceStatistics)
    """Acceptance of drafts that vLLM was given."""
    num_missed_deadlines: int = 0
    """Drafts that a step waited for in vain."""
    num_sequences: int = 0
    """Sequences opened on draft replicas."""
    num_proposer_faults: int = 0
    """Steps without drafts for a fault of our own, on vLLM's thread; the first is logged."""
    num_drafter_faults: int = 0
    """Steps without drafts for a fault of our own, on the drafter's thread; the first is logged."""
