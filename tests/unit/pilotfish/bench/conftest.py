"""Summaries of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from pilotfish.client.answer import Summary
from pilotfish.types import FinishReason

_SUMMARY = Summary(
    request_id="r",
    model_id="m",
    finish_reason=FinishReason.LENGTH,
    stopped_by="",
    seed=0,
    emulated=True,
    num_prompt_tokens=10,
    num_output_tokens=1,
    num_cached_tokens=0,
    queue_time_s=0.25,
    time_to_first_token_s=1.0,
    total_time_s=2.0,
    num_rounds=0,
    num_draft_tokens=0,
    num_accepted_tokens=0,
    num_plain_tokens=0,
    num_missed_deadlines=0,
    mean_acceptance_length=0.0,
    acceptance_per_position=(),
    reason="",
)

MakeSummary = Callable[..., Summary]


@pytest.fixture
def make_summary() -> MakeSummary:
    """One without speculation, but for what is given."""

    def make(**fields: object) -> Summary:
        return dataclasses.replace(_SUMMARY, **fields)

    return make
