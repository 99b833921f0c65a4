"""When a sequence that is away is expected."""

import pytest

from pilotfish.engine.batching.return_time import ReturnTime

MS = 1_000_000


def away(*returns_ms: float) -> ReturnTime:
    known = ReturnTime(MS, MS)
    for away_ms in returns_ms:
        known.add(away_ms * MS)
    return known


def test_two_usual_times_are_told_apart() -> None:
    known = away(*[1, 9] * 30)
    (short, _), (long, _) = known.returns(0)
    assert short == pytest.approx(1 * MS, rel=0.1)
    assert long == pytest.approx(9 * MS, rel=0.1)
    assert known.mean_ns == pytest.approx(5 * MS, rel=0.3)
    assert [in_ns for in_ns, _ in known.returns(4 * MS)] == [pytest.approx(5 * MS, rel=0.1)], "the short one is over"


def test_a_time_of_long_ago_is_forgotten() -> None:
    known = away(40, *[5] * 30)
    assert {round(in_ns / MS) for in_ns, _ in known.returns(0)} == {5}


def test_who_is_very_late_is_not_expected() -> None:
    known = away(*[5] * 10)
    assert known.returns(6 * MS), "a little late"
    assert not known.returns(20 * MS)
