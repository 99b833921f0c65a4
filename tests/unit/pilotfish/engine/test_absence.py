"""When one sequence is expected back, by how long it was away before."""

from __future__ import annotations

import pytest

from pilotfish.engine.absence import Absence

MS = 1_000_000


def after(*away_ms: float) -> Absence:
    """Seen to be away for so long in each round, and just answered again."""
    absence = Absence()
    for duration_ms in away_ms:
        absence.leave(0)
        absence.note_return(round(duration_ms * MS), is_seen=True)
    absence.leave(0)
    return absence


def expected(absence: Absence, now_ms: float, guess_ms: float = 2.0) -> dict[float, float]:
    """Its probability by milliseconds from the beginning of its absence, both rounded, where it is likely at all."""
    returns = absence.returns(now_ms * MS, guess_ms * MS)
    return {round(now_ms + in_ns / MS, 1): round(probability, 2) for in_ns, probability in returns if probability > 0.1}


def test_before_anything_is_known_a_guess_has_to_do() -> None:
    assert expected(Absence(), 0.0, guess_ms=2.0) == {2.0: 1.0}


def test_who_is_always_away_for_as_long_is_expected_then_and_a_little_later() -> None:
    absence = after(*[4.0] * 20)
    assert set(expected(absence, 1.0)) == {4.0}
    assert sum(expected(absence, 1.0).values()) == pytest.approx(1.0)
    assert min(expected(absence, 5.0)) > 5.0
    assert expected(absence, 6.5) == {}


def test_drafts_that_are_there_and_drafts_that_are_not_are_both_usual() -> None:
    absence = after(*[1.5, 6.2] * 20)
    both = expected(absence, 0.0)
    assert set(both) == {1.5, 6.2}
    assert both[1.5] == pytest.approx(0.5, abs=0.2)
    assert expected(absence, 3.0) == {6.2: 1.0}, "it is not one of those that are there"


def test_an_outlier_is_forgotten() -> None:
    absence = after(*[4.0] * 20, 80.0, *[4.0] * 40)
    assert expected(absence, 4.4) == {5.1: 1.0}
    both = after(*[1.5, 6.2] * 20, 1000.0, *[1.5, 6.2] * 40)
    assert set(expected(both, 0.0)) == {1.5, 6.2}


def test_its_mean_weighs_both_times_by_how_frequent_they_are() -> None:
    assert Absence().mean_ns == 0
    assert after(*[4.0] * 20).mean_ns == pytest.approx(4 * MS)
    assert after(*[12.0, 2.0, 2.0, 2.0] * 20).mean_ns == pytest.approx(4.5 * MS, rel=0.25)
    assert after(*[3.9, 4.1] * 10, 50.0, *[3.9, 4.1] * 2).mean_ns < 8 * MS, "a hiccup is soon outweighed"


def test_who_was_waited_for_in_vain_is_not_expected_in_this_round() -> None:
    absence = after(*[4.0] * 20)
    absence.give_up(5 * MS)
    assert expected(absence, 5.0) == {}
    absence.note_return(30 * MS, is_seen=False)
    absence.leave(0)
    assert expected(absence, 0.0)


def test_who_is_waited_for_in_vain_again_and_again_is_known_to_take_longer() -> None:
    absence = after(*[4.0] * 20)
    num_given_up = 0
    for _ in range(40):
        absence.leave(0)
        given_up_ms = next(ms for ms in range(100) if not absence.returns(ms * MS, 0.0))
        if given_up_ms < 12:
            num_given_up += 1
            absence.give_up(given_up_ms * MS)
        absence.note_return(12 * MS, is_seen=given_up_ms >= 12)
    assert num_given_up < 8
    absence.leave(0)
    assert set(expected(absence, 0.0)) == {12.0}


@pytest.mark.parametrize(("returned_ms", "least_ms", "most_ms"), [(4.0, 3.6, 4.0), (9.0, 6.0, 6.0)])
def test_a_return_in_a_step_tells_only_how_long_it_was_at_most(
    returned_ms: float, least_ms: float, most_ms: float
) -> None:
    absence = after(*[6.0] * 20)
    for _ in range(40):
        absence.leave(0)
        absence.note_return(round(returned_ms * MS), is_seen=False)
    absence.leave(0)
    likely = expected(absence, 0.0)
    assert least_ms <= max(likely, key=lambda at_ms: likely[at_ms]) <= most_ms


def test_a_new_sequence_is_believed_to_be_like_another() -> None:
    absence = after(*[4.0] * 20)
    absence.give_up(5 * MS)
    new = absence.of_another()
    new.leave(0)
    assert set(expected(new, 0.0)) == {4.0}
