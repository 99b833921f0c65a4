"""What is told about a request when it has ended."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.speculation.statistics import SpeculationStats
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
    speculation: SpeculationStats
    seed: int
    model_id: str
    emulated: bool
