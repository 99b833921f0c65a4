"""Summaries of answers, as a client gets them."""

import dataclasses
from typing import Any

from pilotfish.client.answer import Summary
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.types import FinishReason

_SUMMARY = Summary(
    request_id="r",
    model_id="m",
    finish_reason=FinishReason.LENGTH,
    stopped_by="",
    seed=0,
    emulated=False,
    lossy=False,
    num_prompt_tokens=10,
    num_output_tokens=1,
    num_cached_tokens=0,
    queue_time_s=0.25,
    time_to_first_token_s=1.0,
    total_time_s=2.0,
    speculation=SpeculationStats(),
)


def make_summary(**fields: Any) -> Summary:
    """One without speculation, but for what is given: fields of its own and of its SpeculationStats."""
    stats = {name: fields.pop(name) for name in SpeculationStats.__struct_fields__ if name in fields}
    return dataclasses.replace(_SUMMARY, speculation=SpeculationStats(**stats), **fields)
