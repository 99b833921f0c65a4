"""Figures against cases that were computed by hand."""

import pytest

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.point import point_of


def test_rates_count_whatever_came_in_the_window(make_record) -> None:
    records = [
        # A warm-up request that still runs when the window opens at 10 s: two of its tokens come later.
        make_record([(9.0, 5), (11.0, 2)], sent_s=8.0, is_measured=False),
        make_record([(12.0, 1), (14.0, 3)], sent_s=10.0),
        # Cut off at the window's end: its three tokens came, it did not end.
        make_record([(13.0, 3)], sent_s=11.0, is_measured=False, error_code="CANCELLED"),
    ]
    records[2].ended_s, records[2].error_code = 0.0, ""
    point = point_of("auto", 2, [Window(records=records, start_s=10.0, end_s=14.0)])
    assert point.window_s == 4.0
    assert point.output_tokens_per_s == pytest.approx((2 + 4 + 3) / 4)
    assert point.requests_per_s == pytest.approx(2 / 4)
    assert point.num_requests == 1


def test_each_turn_has_its_rate_and_all_have_one(make_record) -> None:
    turns = [
        Window(records=[make_record([(1.0, 4)])], start_s=0.0, end_s=2.0),
        Window(records=[make_record([(2.0, 2)])], start_s=0.0, end_s=4.0),
    ]
    point = point_of("auto", 1, turns)
    assert point.output_tokens_per_s_by_turn == [2.0, 0.5]
    assert point.output_tokens_per_s == pytest.approx(1.0)


def test_latencies_are_those_of_the_measured_requests(make_record) -> None:
    records = [
        make_record([(1.0, 1), (2.0, 1), (4.0, 1)], index=0),
        make_record([(3.0, 1), (6.0, 3)], index=1),
        make_record([(50.0, 1)], index=2, is_measured=False),
    ]
    point = point_of("off", 2, [Window(records=records, start_s=0.0, end_s=6.0)])
    assert point.ttft_ms is not None
    assert point.itl_ms is not None
    assert point.e2e_ms is not None
    assert point.tpot_ms is not None
    assert point.queue_ms is not None
    assert (point.ttft_ms.p50, point.ttft_ms.max, point.ttft_ms.mean) == (1000, 3000, 2000)
    # Gaps 1, 2 and 3 s over all requests.
    assert (point.itl_ms.p50, point.itl_ms.p90, point.itl_ms.mean) == (2000, 3000, 2000)
    assert (point.e2e_ms.p50, point.e2e_ms.p99) == (4000, 6000)
    assert point.tpot_ms.p99 == pytest.approx(1500)
    assert point.queue_ms.p50 == 250


def test_failures_are_counted_by_status_and_have_no_latency(make_record) -> None:
    records = [
        make_record([(1.0, 1)], error_code="UNAVAILABLE"),
        make_record([], error_code="UNAVAILABLE"),
        make_record([]),
    ]
    records[0].error, records[1].error = "first", "second"
    point = point_of("on", 2, [Window(records=records, start_s=0.0, end_s=2.0)])
    assert point.errors == {"UNAVAILABLE": 2, "NO_TOKENS": 1}
    assert point.first_errors["UNAVAILABLE"] == "first"
    assert (point.num_failed, point.ttft_ms, point.requests_per_s) == (3, None, 0.0)


def test_speculation_is_summed_up_with_its_reasons(make_record) -> None:
    records = [make_record(reason=reason) for reason in ("", "load: off", "load: no")]
    point = point_of("auto", 2, [Window(records=records, start_s=0.0, end_s=2.0)])
    assert point.drafts is not None
    assert (point.drafts.num_draft_tokens, point.drafts.acceptance_rate) == (12, 0.75)
    assert point.reasons == {"load": 2, "": 1}
    assert point.first_reasons == {"load": "load: off"}
    assert point.rounds_by_draft_tokens == {0: 3, 4: 6}
