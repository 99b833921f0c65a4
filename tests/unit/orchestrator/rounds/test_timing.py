import pytest

from orchestrator.rounds.timing import Mark, RoundTiming
from pilotfish.types import LoadReport

SECOND = 10**9


def mark(at_s: float, length: int, prefill_s: float = 0.0, num_steps: int = 0) -> Mark:
    return Mark(at_s, length, LoadReport(prefill_time_ns=round(prefill_s * SECOND), num_steps=num_steps))


def timing(*moments: tuple[float, int, float]) -> RoundTiming:
    """Asked at the first of (time, committed tokens, seconds of prefills), with a verdict at each other."""
    first, *rest = (mark(*moment) for moment in moments)
    made = RoundTiming(first)
    for moment in rest:
        made = made.arrived(moment)
    return made


def test_before_the_first_verdict_nothing_is_known() -> None:
    asked = timing((1.0, 10, 0.0))
    assert (asked.elapsed_s, asked.prefill_s, asked.plain_token_s) == (0, 0, 0)


def test_a_tokens_time_is_taken_from_the_first_verdict_on_prefills_taken_off() -> None:
    run = timing((1.0, 10, 0.0), (3.0, 11, 0.5), (4.0, 12, 0.5), (7.0, 15, 1.5))
    assert run.elapsed_s == 6.0
    assert run.prefill_s == 1.5
    assert run.plain_token_s == 0.75


def test_one_verdict_tells_no_tokens_time() -> None:
    assert timing((1.0, 10, 0.0), (3.0, 14, 0.0)).plain_token_s == 0


@pytest.mark.parametrize("at_s", [0.5, 1.0])
def test_a_clock_that_stands_is_no_negative_time(at_s: float) -> None:
    assert timing((1.0, 10, 0.0), (at_s, 11, 0.0)).elapsed_s == 0


def test_the_steps_of_a_round_are_counted() -> None:
    asked = RoundTiming(mark(1.0, 10, num_steps=5))
    assert asked.num_steps == 0
    assert asked.arrived(mark(2.0, 11, num_steps=7)).arrived(mark(3.0, 12, num_steps=8)).num_steps == 3
