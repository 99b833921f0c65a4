import itertools
import random

import pytest

from orchestrator.control.propose_time import ProposeTime
from orchestrator.control.round_times import RoundTimes
from orchestrator.control.step_costs import StepCosts
from pilotfish.profiles import RooflineCost
from pilotfish.types import LoadReport


def times() -> RoundTimes:
    return RoundTimes(StepCosts(RooflineCost(weights_s=0.008, token_s=0.0001)), None)


def rounds_ms(subject: RoundTimes, num_sequences: int, k: int = 4) -> list[float]:
    prices = subject.prices(num_sequences, k, lambda depth: depth, 1.0)
    return [1000 * seconds for seconds in prices.rounds_s]


def turn(subject: RoundTimes, num_sequences: int, per_step: int, round_s: float, k: int = 4, num: int = 60) -> None:
    """So many sequences are in each step, and rounds of k tokens take round_s."""
    for _ in range(num):
        subject.add_step(LoadReport(num_sequences_decoding=per_step), num_sequences)
        subject.add_round(round_s, k, k + 1, num_sequences)


def test_alone_a_round_is_its_step_and_its_proposal() -> None:
    subject = times()
    subject.add_propose(4, 0.003, 0.002, 1)
    assert rounds_ms(subject, 1) == pytest.approx([8, 9.5, 10, 10.5, 11])


def test_halves_that_take_turns_hide_their_proposals_and_wait_for_each_other() -> None:
    subject = times()
    subject.add_propose(4, 0.003, 0.002, 1)
    turn(subject, 16, 8, 0.016)
    assert rounds_ms(subject, 16) == pytest.approx([8, 16, 16, 16, 16])
    assert rounds_ms(subject, 40, 1)[1] == pytest.approx(16), "as under the next lower load"


def test_rounds_that_always_take_longer_than_expected_are_believed_for_their_length() -> None:
    subject = times()
    turn(subject, 1, 1, 0.016, k=4)
    expected = rounds_ms(subject, 1)
    assert expected[4] == pytest.approx(16)
    assert 8 < expected[1] <= expected[3] < 16, "none is believed to be as bad that was not tried"
    turn(subject, 1, 1, 0.010, k=3)
    assert rounds_ms(subject, 1)[3:] == pytest.approx([10, 16], rel=0.02)


def test_a_few_rounds_beside_the_prefills_of_a_new_load_tell_nothing() -> None:
    subject = times()
    turn(subject, 1, 1, 0.032, k=4, num=11)
    assert rounds_ms(subject, 1)[4] == pytest.approx(8)


def test_the_luck_of_one_length_does_not_tell_it_from_the_others() -> None:
    subject, luck = times(), random.Random(2)
    for _ in range(200):
        for k in (3, 4):
            turn(subject, 1, 1, 0.009 if luck.random() < 0.5 else 0.015, k=k, num=1)
    for _ in range(4):
        turn(subject, 1, 1, 0.015, k=4, num=1)
    expected = rounds_ms(subject, 1)
    assert expected[4] == pytest.approx(expected[3], rel=0.02)


def test_what_rounds_of_one_length_take_is_believed_of_the_others() -> None:
    subject = times()
    subject.add_propose(8, 0.004, 0.004, 1)
    turn(subject, 1, 1, 0.009, k=4)  # 10 ms would be expected: drafts are mostly made ahead
    assert rounds_ms(subject, 1, k=8)[4] == pytest.approx(9)
    assert rounds_ms(subject, 1, k=8)[8] == pytest.approx(0.9 * 12)


def test_rounds_with_and_without_a_wait_for_their_draft_take_what_they_take_on_average() -> None:
    subject = times()
    for _ in range(60):
        turn(subject, 1, 1, 0.009, num=2)
        turn(subject, 1, 1, 0.015, num=1)
    assert rounds_ms(subject, 1)[4] == pytest.approx(11, abs=1)


def test_what_was_found_too_slow_is_tried_again_at_last() -> None:
    subject = times()
    turn(subject, 4, 2, 0.032)
    assert rounds_ms(subject, 4)[4] == pytest.approx(32)
    subject.level(4).count_plain_tokens(4 * 511, 4)
    assert rounds_ms(subject, 4)[4] == pytest.approx(32)
    subject.level(4).count_plain_tokens(4, 4)
    assert [rounds_ms(subject, 4)[4] for _ in range(9)][-1] == pytest.approx(8)


def test_prices_are_kept_for_longer_the_longer_the_load_lasts() -> None:
    """A round waits while they are found."""
    subject = times()
    told = [subject.prices(1, 4, lambda depth: depth, 1.0) for _ in range(31)]
    lengths = [len(list(same)) for _, same in itertools.groupby(told, key=id)]
    assert lengths == [1, 2, 4, 8, 8, 8]
    assert subject.prices(2, 4, lambda depth: depth, 1.0) is not told[-1], "another load"


def test_requests_that_allow_other_lengths_leave_the_prices_as_they_are() -> None:
    subject = times()
    told = [subject.prices(2, k, lambda depth: depth, 1.0) for _ in range(15) for k in (4, 8)]
    assert [len({id(prices) for prices in told[first::2]}) for first in (0, 1)] == [6, 6]
    assert {len(prices.rounds_s) for prices in told[::2]} == {5}


def test_prices_that_nobody_asked_for_in_a_while_are_found_anew() -> None:
    subject = times()
    seldom = [subject.prices(1, 4, lambda depth: depth, 1.0) for _ in range(31)][-1]
    for _ in range(8):
        subject.prices(1, 8, lambda depth: depth, 1.0)
    assert subject.prices(1, 4, lambda depth: depth, 1.0) is not seldom


def test_a_proposal_takes_a_fixed_part_and_one_for_each_token() -> None:
    propose = ProposeTime()
    assert propose.seconds(4) == 0
    for num_tokens in (2, 4, 2, 4):
        propose.add(num_tokens, 0.004 + 0.0005 * num_tokens, 0.0005 * num_tokens)
    assert propose.seconds(1) == pytest.approx(0.0045)
    assert propose.seconds(8) == pytest.approx(0.008)


def test_one_moment_in_which_all_drafts_are_late_tells_little() -> None:
    subject = times()
    propose = subject.level(32).propose
    for _ in range(320):
        subject.add_propose(4, 0.003, 0.002, 32)
    for _ in range(32):
        subject.add_propose(4, 0.068, 0.030, 32)
    assert propose.seconds(4) < 0.018
    for _ in range(1000):
        subject.add_propose(4, 0.068, 0.030, 32)
    assert propose.seconds(4) == pytest.approx(0.068, rel=0.1), "but drafts that stay late are believed"


def test_proposals_that_are_ready_cost_nothing() -> None:
    propose = ProposeTime()
    for _ in range(10):
        propose.add(4, 0.0, 0.002)
    assert propose.seconds(4) == 0
