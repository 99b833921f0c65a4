import pytest

from pilotfish.examine.acceptance import acceptance_of, replay
from tests.unit.pilotfish.examine.conftest import MakeAnswer


def test_rates_are_by_place_given_those_before(make_answer: MakeAnswer) -> None:
    acceptance = acceptance_of([make_answer(9, [2, 1, 0, 2, 0, 0, 0, 0])], 3)
    # Of eight places three begin right; of those, two go on; what follows the second is wrong both times.
    assert acceptance.rates == pytest.approx((3 / 8, 2 / 3, 0.0))
    assert (acceptance.num_answers, acceptance.num_positions, acceptance.confidence) == (1, 8, 0.5)


def test_what_an_answer_that_was_cut_off_cannot_tell_does_not_count(make_answer: MakeAnswer) -> None:
    """At the last place two drafts are judged, and the first of them is right: nobody knows of the second."""
    cut = make_answer(3, [0, 1])
    assert acceptance_of([cut], 2).rates == (0.5,)
    assert replay([cut], 1) == (1.0, 1.0)  # the round after two tokens has no known end
    assert replay([make_answer(3, [0, 1], is_whole=True)], 1) == (1.0, 1.0)


def test_rounds_follow_each_other(make_answer: MakeAnswer) -> None:
    answer = make_answer(9, [2, 5, 5, 0, 1, 5, 0, 0], is_whole=True)
    # K = 2: three tokens at place 1, one at 4, two at 5, one at 7, one at 8.
    assert replay([answer], 2) == (8 / 5, 2.0)
    assert replay([answer], 0) == (1.0, 0.0)
    # K = 1: places 1, 3, 5, 7 and 8.
    assert replay([answer], 1)[0] == 8 / 5


def test_a_drafter_without_an_idea_costs_no_rows(make_answer: MakeAnswer) -> None:
    answer = make_answer(5, [4], is_whole=True)
    assert replay([answer], 4) == (4.0, 4.0)
    silent = make_answer(5, [], is_whole=True)
    assert replay([silent], 4) == (1.0, 0.0)
    assert acceptance_of([silent], 4).confidence is None


def test_nothing_to_examine() -> None:
    acceptance = acceptance_of([], 2)
    assert (acceptance.rates, acceptance.tokens_per_round) == ((), (1.0, 1.0, 1.0))
