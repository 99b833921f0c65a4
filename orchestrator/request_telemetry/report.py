"""What is told about a request when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pilotfish.speculation.statistics import AcceptanceStatistics
from pilotfish.types import FinishReason


@dataclass(frozen=True, kw_only=True)
class Report:
    """See pilotfish.v1.Summary."""

    request_id: str
    finish_reason: FinishReason
    stopped_by: str
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    queue_time_ns: int
    time_to_first_token_ns: int
    total_time_ns: int
    statistics: AcceptanceStatistics
    num_plain_tokens: int
    num_missed_deadlines: int
    limitation: str
    """Why speculation was off or limited, in words; empty if it was not."""
    limitation_reason: str
    """The same as a stable identifier (orchestrator.reasons.Reason)."""
    draft_token_counts: Mapping[int, int]
    """Rounds by the draft tokens they asked for; 0: plain runs."""
    seed: int
    model_id: str
    emulated: bool
