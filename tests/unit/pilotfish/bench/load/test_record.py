"""Times of one request."""

import pytest


def test_times_count_from_when_the_request_was_due(make_record) -> None:
    record = make_record([(3.0, 1), (4.0, 2), (6.0, 2)], due_s=1.0, lag_s=0.5)
    assert record.is_ok
    assert record.num_tokens == 5
    assert (record.ttft_s, record.e2e_s, record.lag_s) == (2.0, 5.0, 0.5)
    assert record.gaps_s == [1.0, 2.0]
    assert record.tpot_s == pytest.approx(3.0 / 4)
    assert record.itl_p95_s == 2.0


def test_what_it_did_not_get_has_no_time(make_record) -> None:
    record = make_record([], error_code="UNAVAILABLE")
    assert not record.is_ok
    assert (record.ttft_s, record.e2e_s, record.tpot_s, record.itl_p95_s) == (None, None, None, None)


def test_a_single_token_has_no_time_per_further_token(make_record) -> None:
    record = make_record([(1.0, 1)])
    assert record.is_ok
    assert (record.tpot_s, record.itl_p95_s) == (None, None)


def test_an_answer_without_a_token_is_none(make_record) -> None:
    assert not make_record([]).is_ok


def test_the_digest_is_that_of_the_tokens_however_they_came(make_record) -> None:
    in_one, in_two = make_record([(1.0, 3)]), make_record([(1.0, 1)])
    in_two.add([8, 9], 2.0)
    assert in_one.digest == in_two.digest
    assert in_one.digest != make_record([(1.0, 3)], first_token_id=8).digest
