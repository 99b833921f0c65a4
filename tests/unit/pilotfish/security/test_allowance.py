"""What one key may use."""

import pytest

from pilotfish.errors import ResourceExhaustedError
from pilotfish.security.allowance import Allowance
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def allowance(clock: Clock | None = None, **limits: int) -> Allowance:
    return Allowance(ApiKey(name="ann", sha256=digest_of("pf-a"), limits=KeyLimits(**limits)), clock or Clock())


def test_so_many_at_once_and_a_failed_one_gives_its_place_back() -> None:
    two = allowance(max_concurrent_requests=2)
    with two.request(), two.request():
        with pytest.raises(ResourceExhaustedError, match="2 requests at once are the limit of API key ann") as refusal:
            two.request().__enter__()
        assert refusal.value.retry_after_s is not None
    with pytest.raises(KeyError), two.request():
        raise KeyError
    assert two.num_requests == 0


def test_so_many_requests_a_minute_with_the_time_until_the_next() -> None:
    clock = Clock()
    three = allowance(clock, requests_per_min=3)
    for _ in range(3):
        with three.request():
            pass
    with pytest.raises(ResourceExhaustedError, match="3 requests a minute") as refusal:
        three.request().__enter__()
    assert refusal.value.retry_after_s == pytest.approx(20)
    clock.now_s += 20.001
    with three.request():
        pass


def test_tokens_that_were_used_are_made_good_before_the_next_request() -> None:
    clock = Clock()
    some = allowance(clock, tokens_per_min=600)
    with some.request():
        some.spend(900)
    with pytest.raises(ResourceExhaustedError, match="600 tokens a minute") as refusal:
        some.request().__enter__()
    assert refusal.value.retry_after_s == pytest.approx(30.1)
    clock.now_s += 30.2
    with some.request():
        pass


def test_a_refused_request_costs_nothing() -> None:
    one = allowance(max_concurrent_requests=1, requests_per_min=2)
    with one.request():
        for _ in range(5):
            with pytest.raises(ResourceExhaustedError, match="at once"):
                one.request().__enter__()
    with one.request():
        pass


def test_what_comes_before_a_request_counts_at_once_and_as_one_if_it_fails() -> None:
    one = allowance(max_concurrent_requests=1, requests_per_min=2)
    with one.preparation(), pytest.raises(ResourceExhaustedError):
        one.preparation().__enter__()
    with one.request():
        pass
    with pytest.raises(KeyError), one.preparation():
        raise KeyError
    with pytest.raises(ResourceExhaustedError, match="2 requests a minute"):
        one.preparation().__enter__()
    assert one.num_requests == 0
