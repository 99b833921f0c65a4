"""Records of requests with times that can be summed in the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pilotfish.bench.load.record import RequestRecord
from pilotfish.client.answer import Summary
from pilotfish.types import FinishReason

MakeRecord = Callable[..., RequestRecord]


MakeSummary = Callable[[int], Summary]


@pytest.fixture
def make_summary() -> MakeSummary:
    return _summary


@pytest.fixture
def make_record() -> MakeRecord:
    return _record


def _record(
    arrivals: Sequence[tuple[float, int]] = ((1.0, 1), (2.0, 3)),
    *,
    index: int = 0,
    due_s: float = 0.0,
    lag_s: float = 0.0,
    is_measured: bool = True,
    error_code: str = "",
    reason: str = "",
    first_token_id: int = 7,
) -> RequestRecord:
    """Tokens as (when, how many); ended with the last of them, or after a second if there was none."""
    record = RequestRecord(index, is_measured, scheduled_s=due_s, sent_s=due_s + lag_s)
    for time_s, num_tokens in arrivals:
        record.add(range(first_token_id, first_token_id + num_tokens), time_s)
    record.ended_s = arrivals[-1][0] if arrivals else due_s + 1
    record.error_code = error_code
    if not error_code:
        record.summary = _summary(record.num_tokens, reason)
    return record


def _summary(num_tokens: int, reason: str = "") -> Summary:
    return Summary(
        request_id="r",
        model_id="m",
        finish_reason=FinishReason.LENGTH,
        stopped_by="",
        seed=0,
        emulated=True,
        num_prompt_tokens=10,
        num_output_tokens=num_tokens,
        num_cached_tokens=0,
        queue_time_s=0.25,
        time_to_first_token_s=1.0,
        total_time_s=2.0,
        num_rounds=2,
        num_draft_tokens=4,
        num_accepted_tokens=3,
        num_plain_tokens=1,
        num_missed_deadlines=0,
        mean_acceptance_length=2.5,
        acceptance_per_position=(1.0, 0.5),
        reason=reason,
        reason_id=reason.partition(":")[0],
        num_rounds_by_draft_tokens={0: 1, 4: 2},
    )
