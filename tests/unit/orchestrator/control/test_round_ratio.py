import random

import pytest

from orchestrator.control.round_ratio import RoundRatio


class Rounds:
    """Rounds of one sequence, counted."""

    def __init__(self) -> None:
        self.ratio = RoundRatio()
        self._num_rounds = 0

    def take(self, ratio: float, k: int, num: int = 20, num_sequences: int = 1) -> None:
        for _ in range(num):
            self._num_rounds += num_sequences
            self.ratio.add(ratio, k, self._num_rounds, num_sequences)


def factor(rounds: Rounds, k: int) -> float:
    return factor_of(rounds.ratio, k)


def factor_of(ratio: RoundRatio, k: int) -> float:
    known = ratio.factors(k)
    assert known is not None
    return known[k]


def test_nothing_is_said_of_a_few_rounds() -> None:
    rounds = Rounds()
    rounds.take(1.5, 4, num=11)
    assert rounds.ratio.is_known
    assert rounds.ratio.factors(4) is None


def test_of_lengths_that_were_not_measured_half_of_the_loss_is_believed() -> None:
    rounds = Rounds()
    rounds.take(1.4, 4)
    assert [factor(rounds, k) for k in (4, 5, 6, 3)] == pytest.approx([1.4, 1.2, 1.2, 1.2])
    faster = Rounds()
    faster.take(0.8, 4)
    assert factor(faster, 7) == pytest.approx(0.8)


def test_a_machine_that_gets_faster_is_believed_of_the_lengths_that_are_not_used_then() -> None:
    rounds = Rounds()
    for _ in range(20):
        rounds.take(1.5, 6, num=1)
        rounds.take(1.5, 8, num=1)
    rounds.take(1.0, 6, num=50)
    assert factor(rounds, 6) < 1.05
    assert factor(rounds, 8) < 1.2


def test_the_two_factors_do_not_wander_off() -> None:
    """Only their product is measured."""
    rounds, luck = Rounds(), random.Random(5)
    for number in range(100_000):
        rounds.take(luck.choice((0.6, 1.0, 1.7)), 4 + number // 1000 % 3, num=1)
    mean = 3.3 / 3
    assert [factor(rounds, k) for k in (4, 5, 6)] == pytest.approx([mean] * 3, rel=0.3)
    assert rounds.ratio.common == pytest.approx(mean, rel=0.3)


def test_a_length_whose_rounds_take_longer_at_any_time_is_told_from_the_others() -> None:
    rounds, machine = Rounds(), random.Random(3)
    for _ in range(100):
        now = machine.choice((1.0, 1.6))
        for k, own in ((4, 1.0), (8, 1.4)):
            rounds.take(own * now, k, num=1)
    assert factor(rounds, 8) / factor(rounds, 4) == pytest.approx(1.3, abs=0.12)


def test_trying_a_length_is_no_change_of_the_machine() -> None:
    rounds = Rounds()
    rounds.take(1.0, 4)
    rounds.take(2.0, 8, num=11)
    assert factor(rounds, 4) == pytest.approx(1.0)


@pytest.mark.parametrize("num_sequences", [1, 32])
def test_what_was_measured_first_is_forgotten_first(num_sequences: int) -> None:
    rounds = Rounds()
    rounds.take(1.0, 4, num_sequences=num_sequences)
    for age in (64, 128, 256, 512, 512):
        rounds.take(2.0, 8, num_sequences=num_sequences)
        rounds.take(1.0, 4, num=age, num_sequences=num_sequences)
        assert factor(rounds, 8) == pytest.approx(2.0, rel=0.05), age
        rounds.take(1.0, 4, num=1, num_sequences=num_sequences)
        assert factor(rounds, 8) == pytest.approx(1.0, rel=0.05), age


def tried(lengths: dict[int, float]) -> RoundRatio:
    """Rounds of these draft lengths took so many times what was expected."""
    subject = RoundRatio()
    for number in range(40):
        for num_draft_tokens, ratio in lengths.items():
            subject.add(ratio, num_draft_tokens, number, 1)
    return subject


def test_another_try_knows_half_of_how_lengths_differ_and_nothing_of_all() -> None:
    subject = tried({2: 1.6, 5: 2.4})
    assert subject.common == pytest.approx(2.0, rel=0.01)
    subject.hope()
    assert not subject.is_known
    assert factor_of(subject, 2) == pytest.approx(0.9, abs=0.02)
    assert factor_of(subject, 5) == pytest.approx(1.1, abs=0.02)


def test_one_slow_round_does_not_end_another_try() -> None:
    subject = tried({2: 2.0})
    subject.hope()
    subject.add(1.9, 2, 41, 1)
    for number in range(4):
        assert factor_of(subject, 2) == 1.0
        subject.add(1.0, 2, 42 + number, 1)
    subject.add(1.0, 2, 46, 1)
    assert factor_of(subject, 2) == pytest.approx(1.15, abs=0.05)


def test_a_try_that_takes_as_long_as_the_last_one_is_over_soon() -> None:
    subject = tried({2: 2.0, 5: 2.0})
    subject.hope()
    for number in range(6):
        subject.add(2.0, 2, 41 + number, 1)
    assert factor_of(subject, 2) == pytest.approx(2.0)
    assert factor_of(subject, 5) == pytest.approx(2.0)
