"""How long one sequence is waited for, by how long it was away before."""

from __future__ import annotations

import pytest

from pilotfish.engine.absence import Absence

MS = 1_000_000


def after(*away_ms: float, worth_ms: float = 8.0) -> Absence:
    """Away so long in each round, and waited for as long as the record says."""
    absence = Absence()
    for duration_ms in away_ms:
        stay(absence, duration_ms, worth_ms)
    absence.since_ns = 0
    return absence


def stay(absence: Absence, away_ms: float, worth_ms: float = 8.0) -> bool:
    """Whether it was waited for until it came back."""
    absence.since_ns = 0
    usual_ns = 2 * MS if absence.usual_ns is None else absence.usual_ns
    end_ns = absence.end_ns(usual_ns, worth_ms * MS)
    was_awaited = absence.is_awaited
    if end_ns < away_ms * MS:
        absence.note_time(round(end_ns), usual_ns, worth_ms * MS)
    is_seen = was_awaited and not absence.is_late
    absence.note_return(round(away_ms * MS if is_seen else max(away_ms, 8.0) * MS), is_seen=is_seen)
    return is_seen


def end_ms(absence: Absence, worth_ms: float = 8.0) -> float:
    assert absence.usual_ns is not None
    return absence.end_ns(absence.usual_ns, worth_ms * MS) / MS


def test_who_is_always_away_for_as_long_is_waited_for_a_little_longer() -> None:
    assert end_ms(after(*[4.0] * 20)) == pytest.approx(6.3, abs=0.2)


def test_drafts_that_are_there_and_drafts_that_are_not_are_both_usual() -> None:
    absence = after(*[1.5, 6.2] * 20)
    assert end_ms(absence) > 6.5
    assert all(stay(absence, away_ms) for away_ms in (1.5, 1.5, 6.2, 1.5, 6.2, 6.2))


def test_waiting_ends_where_it_is_not_worth_while() -> None:
    assert end_ms(after(*[1.5, 6.2] * 20), worth_ms=5.0) == pytest.approx(6.6, abs=0.3)
    assert end_ms(after(*[1.5, 6.2] * 20), worth_ms=0.0) < 6.7


def test_who_is_late_once_is_waited_for_the_next_time() -> None:
    absence = after(*[4.0] * 20)
    assert not stay(absence, 30.0)
    assert stay(absence, 4.0)


def test_who_is_late_again_and_again_is_waited_for_ever_more_seldom() -> None:
    absence = after(*[1.0] * 20)
    awaited = 0
    for _ in range(100):
        awaited += absence.is_awaited
        stay(absence, 7.9, worth_ms=3.0)
        absence.usual_ns = 1.0 * MS  # whatever is learned meanwhile
    assert awaited < 12
    for _ in range(60):
        stay(absence, 1.0)
    assert stay(absence, 1.0)


def test_where_rows_take_time_who_is_late_is_held_to_be_slow_at_once() -> None:
    absence = after(*[4.0] * 20)
    absence.note_time(30 * MS, 4.0 * MS, 0.0)
    assert absence.usual_ns == pytest.approx(6.0 * MS, rel=0.01)


def test_a_return_in_a_step_tells_only_how_long_it_was_at_most() -> None:
    absence = after(*[6.0] * 20)
    absence.note_return(4 * MS, is_seen=False)
    assert absence.usual_ns == pytest.approx(3.6 * MS)
    absence.note_return(9 * MS, is_seen=False)
    assert absence.usual_ns == pytest.approx(3.6 * MS)
