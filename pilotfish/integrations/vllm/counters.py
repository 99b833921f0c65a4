"""What the proposer counts; read by whoever tells it."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.drafting.speculation_cache import AheadCounters
from pilotfish.speculation.statistics import AcceptanceStatistics


@dataclass(slots=True)
class ProposerCounters:
    """Since vLLM started."""

    acceptance: AcceptanceStatistics = field(default_factory=AcceptanceStatistics)
    """Of drafts that vLLM was given."""
    ahead: AheadCounters = field(default_factory=AheadCounters)
    num_plain_tokens: int = 0
    """Output tokens of rows that had no draft."""
    num_missed_deadlines: int = 0
    """Drafts that a step waited for in vain."""
    num_late_drafts: int = 0
    """Those that no step waited for in the end, and whose rest served a later one."""
    num_probes: int = 0
    """Steps that asked and did not wait, after one that had waited in vain."""
    num_shadow_drafts: int = 0
    """Drafts that nobody waited for nor verified, to know what asking would yield."""
    num_sequences: int = 0
    """Opened on draft replicas."""
    num_pauses: int = 0
    """Times that asking was found not to pay."""
    num_faults: int = 0
    """Steps without drafts for a fault of our own; the log tells more."""
