"""Figures against cases that were computed by hand."""

import pytest

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.point import point_of
from pilotfish.bench.load.slo import Slo

CLOSED, OPEN = Level("concurrency", 2), Level("rate", 4)


def test_rates_count_whatever_came_in_the_window(make_record) -> None:
    records = [
        # A warm-up request that still runs when the window opens at 10 s: two of its tokens come later.
        make_record([(9.0, 5), (11.0, 2)], due_s=8.0, is_measured=False),
        make_record([(12.0, 1), (14.0, 3)], due_s=10.0),
        # Cut off at the window's end: its three tokens came, it did not end.
        make_record([(13.0, 3)], due_s=11.0, is_measured=False, error_code="CANCELLED"),
    ]
    records[2].ended_s, records[2].error_code = 0.0, ""
    point = point_of("auto", CLOSED, [Window(records=records, start_s=10.0, end_s=14.0)], None)
    assert point.window_s == 4.0
    assert point.output_tokens_per_s == pytest.approx((2 + 4 + 3) / 4)
    assert point.achieved_rps == pytest.approx(2 / 4)
    # Two ended in the window, with prompts of 10 tokens each.
    assert point.total_tokens_per_s == pytest.approx((9 + 20) / 4)
    # 1 s of the first, 4 s of the second, 3 s of the third.
    assert point.mean_in_flight == pytest.approx((1 + 4 + 3) / 4)
    assert point.num_requests == 1


def test_latencies_are_those_of_the_measured_requests(make_record) -> None:
    records = [
        make_record([(1.0, 1), (2.0, 1), (4.0, 1)], index=0),
        make_record([(3.0, 1), (6.0, 3)], index=1),
        make_record([(50.0, 1)], index=2, is_measured=False),
    ]
    point = point_of("off", CLOSED, [Window(records=records, start_s=0.0, end_s=6.0)], None)
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


def test_both_clocks_of_the_open_loop_are_told(make_record) -> None:
    record = make_record([(2.0, 1), (3.0, 1)], due_s=0.0, lag_s=0.5)
    point = point_of("off", OPEN, [Window(records=[record], start_s=0.0, end_s=3.0)], None)
    assert point.ttft_ms is not None
    assert point.ttft_from_send_ms is not None
    assert point.e2e_from_send_ms is not None
    assert (point.ttft_ms.p50, point.ttft_from_send_ms.p50, point.e2e_from_send_ms.p50) == (2000, 1500, 2500)
    assert point.client.schedule_lag_ms is not None
    assert point.client.schedule_lag_ms.p99 == 500
    assert "it was too slow" in point.client.warnings[0]


def test_offered_is_what_was_due_in_the_window_and_the_closed_loop_offers_nothing(make_record) -> None:
    records = [make_record([(due_s + 1, 1)], due_s=due_s) for due_s in (0.0, 0.5, 1.0, 3.0)]
    records[3].is_measured = False
    window = Window(records=records, start_s=0.0, end_s=2.0)
    assert point_of("off", OPEN, [window], None).offered_rps == pytest.approx(3 / 2)
    assert point_of("off", CLOSED, [window], None).offered_rps is None


def test_goodput_leaves_out_what_missed_the_objective_and_what_failed(make_record) -> None:
    records = [
        make_record([(0.5, 1)]),
        make_record([(0.9, 1)]),
        make_record([(2.0, 1)]),
        make_record([], error_code="RESOURCE_EXHAUSTED"),
    ]
    point = point_of("on", CLOSED, [Window(records=records, start_s=0.0, end_s=2.0)], Slo(ttft=1000))
    assert point.good_share == pytest.approx(2 / 4)
    # Three answers in two seconds, two of three good.
    assert point.achieved_rps == pytest.approx(3 / 2)
    assert point.goodput_rps == pytest.approx(2 / 2)
    assert point_of("on", CLOSED, [Window(records=records, start_s=0.0, end_s=2.0)], None).goodput_rps is None


def test_failures_are_counted_by_status_and_have_no_latency(make_record) -> None:
    records = [
        make_record([(1.0, 1)], error_code="UNAVAILABLE"),
        make_record([], error_code="UNAVAILABLE"),
        make_record([]),
    ]
    records[0].error, records[1].error = "first", "second"
    point = point_of("on", CLOSED, [Window(records=records, start_s=0.0, end_s=2.0)], Slo(ttft=1))
    assert point.errors == {"UNAVAILABLE": 2, "NO_TOKENS": 1}
    assert point.first_errors["UNAVAILABLE"] == "first"
    assert (point.num_failed, point.ttft_ms, point.goodput_rps, point.good_share) == (3, None, None, 0.0)


def test_turns_are_pooled(make_record) -> None:
    windows = [
        Window(records=[make_record([(1.0, 4)])], start_s=0.0, end_s=1.0),
        Window(records=[make_record([(3.0, 4)])], start_s=0.0, end_s=3.0),
    ]
    point = point_of("off", CLOSED, windows, None)
    assert (point.num_turns, point.num_requests, point.output_tokens_per_s) == (2, 2, 2.0)


def test_speculation_is_summed_up_with_its_reasons(make_record) -> None:
    records = [make_record(reason=reason) for reason in ("", "load: off", "load: no")]
    point = point_of("auto", CLOSED, [Window(records=records, start_s=0.0, end_s=2.0)], None)
    assert point.drafts is not None
    assert (point.drafts.num_draft_tokens, point.drafts.acceptance_rate) == (12, 0.75)
    assert point.reasons == {"load": 2, "": 1}
    assert point.first_reasons == {"load": "load: off"}
    assert point.rounds_by_draft_tokens == {0: 3, 4: 6}


def test_a_window_without_anything_divides_by_nothing() -> None:
    point = point_of("off", CLOSED, [Window()], Slo(ttft=1))
    assert (point.output_tokens_per_s, point.achieved_rps, point.good_share) == (0.0, 0.0, None)
