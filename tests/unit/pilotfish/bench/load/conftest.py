"""Records of requests with times that can be summed in the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pilotfish.bench.load.driver import RequestRecord
from pilotfish.bench.measurement import Arrival, Measurement
from tests.support.summaries import make_summary

MakeRecord = Callable[..., RequestRecord]


@pytest.fixture
def make_record() -> MakeRecord:
    def make(
        arrivals: Sequence[tuple[float, int]] = ((1.0, 1), (2.0, 3)),
        *,
        index: int = 0,
        sent_s: float = 0.0,
        is_measured: bool = True,
        error_code: str = "",
        reason: str = "",
        first_token_id: int = 7,
    ) -> RequestRecord:
        """Tokens as (when, how many); ended with the last of them, or after a second if there was none."""
        num_tokens = sum(num for _, num in arrivals)
        summary = make_summary(
            num_output_tokens=num_tokens,
            num_rounds=2,
            num_draft_tokens=4,
            num_accepted_tokens=3,
            num_plain_tokens=1,
            mean_acceptance_length=2.5,
            acceptance_per_position=(1.0, 0.5),
            reason=reason,
            reason_id=reason.partition(":")[0],
            num_rounds_by_draft_tokens={0: 1, 4: 2},
        )
        return RequestRecord(
            index,
            is_measured,
            sent_s=sent_s,
            ended_s=arrivals[-1][0] if arrivals else sent_s + 1,
            answer=Measurement(
                token_ids=tuple(range(first_token_id, first_token_id + num_tokens)),
                arrivals=tuple(Arrival(time_s - sent_s, num) for time_s, num in arrivals),
                summary=None if error_code else summary,
            ),
            error_code=error_code,
        )

    return make
