"""As many at once as a minute's worth, then as they come."""

from pilotfish.security.token_bucket import TokenBucket


def test_a_minutes_worth_at_once_then_one_by_one() -> None:
    bucket = TokenBucket(100.0)
    for _ in range(6):
        assert bucket.wait_s(6, 100.0) == 0
        bucket.take(1, 6, 100.0)
    assert abs(bucket.wait_s(6, 100.0) - 10) < 1e-6
    assert abs(bucket.wait_s(6, 107.0) - 3) < 1e-6
    assert bucket.wait_s(6, 110.001) == 0


def test_what_was_taken_too_much_is_made_good() -> None:
    bucket = TokenBucket(0.0)
    bucket.take(180, 60, 0.0)
    assert abs(bucket.wait_s(60, 0.0) - 121) < 1e-6
    assert bucket.wait_s(60, 121.001) == 0


def test_it_never_holds_more_than_a_minutes_worth() -> None:
    bucket = TokenBucket(0.0)
    bucket.take(60, 60, 1e6)
    assert bucket.wait_s(60, 1e6) > 0
