"""On or off for all that decode on a replica: by what is predicted, and by what was got."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from orchestrator.control.gate import Gate

PLAIN_S = 0.001
TICK_S = 0.1


class Watched:
    """A gate that is asked every 0.1 s, and told what the sequences got meanwhile."""

    def __init__(self, *, load: int = 4) -> None:
        self.gate, self.load, self.now_s = Gate(Counter()), load, 0.0
        self.num_trials = 0
        self.history: list[bool] = []

    def run(self, seconds: float, gain: float, got: float = 0.0, **values: bool) -> bool:
        """gain: as predicted. got: speed over plain decoding's while it is open; 0: as predicted."""
        told = {"can_pay": True, "trial_s": 0.1} | values
        for _ in range(round(seconds / TICK_S)):
            was_trial = self.gate.is_trial
            self.gate.update(self.now_s, self.load, gain, **told)
            self.num_trials += self.gate.is_trial and not was_trial
            self.history.append(bool(self.gate.is_open))
            self.now_s += TICK_S
            for _ in range(self.load if self.gate.is_open else 0):
                self.gate.add(round((got or gain) * TICK_S / PLAIN_S), PLAIN_S, TICK_S)
        return bool(self.gate.is_open)

    def begins_s(self) -> list[float]:
        """When it opened."""
        pairs = enumerate(pairwise(self.history), 1)
        return [TICK_S * tick for tick, (was_open, is_open) in pairs if is_open and not was_open]


@pytest.mark.parametrize("gain", [1.2, 0.8])
def test_it_begins_as_the_first_gain_says(gain) -> None:
    watched = Watched()
    assert watched.gate.is_open is None
    assert watched.run(0.1, gain) is (gain > 1)
    assert watched.gate.num_switches == 0


@pytest.mark.parametrize(("before", "after", "is_open"), [(1.2, 0.9, False), (0.9, 1.2, True)])
def test_it_follows_a_clear_change(before, after, is_open) -> None:
    watched = Watched()
    watched.run(3.0, before, can_pay=False)
    assert watched.run(3.0, after, can_pay=False) is is_open
    assert watched.gate.num_switches == 1


def test_a_small_difference_switches_nothing() -> None:
    opened, closed = Watched(), Watched()
    opened.run(1.0, 1.2)
    closed.run(1.0, 0.9)
    for gain in (0.98, 1.04, 1.0) * 20:
        assert opened.run(0.2, gain, can_pay=False)
        assert not closed.run(0.2, gain, can_pay=False)


def test_it_does_not_flap() -> None:
    """However what is predicted changes, it stays as it is for half a second."""
    watched = Watched()
    for gain in (1.2, 0.9) * 50:
        watched.run(0.1, gain, can_pay=False)
    assert watched.gate.num_switches <= 20


def test_a_predicted_loss_closes_nothing_where_as_much_is_got() -> None:
    watched = Watched()
    watched.run(5.0, 1.2)
    assert watched.run(5.0, 0.95, got=1.2)


def test_another_load_is_decided_at_once_and_about_the_same_one_is_not() -> None:
    watched = Watched(load=8)
    watched.run(0.2, 1.3)
    watched.load = 9
    assert watched.run(0.1, 0.9)
    watched.load = 32
    assert not watched.run(0.1, 0.9)
    watched.load = 8
    assert watched.run(0.1, 1.1)


@pytest.mark.parametrize(("got", "seconds"), [(0.7, 2.0), (0.93, 4.0)])
def test_what_is_not_got_closes_it_whatever_is_predicted(got, seconds) -> None:
    watched = Watched()
    assert not watched.run(seconds, 1.3, got=got, can_pay=False)


def test_one_bad_second_is_sat_out() -> None:
    watched = Watched()
    watched.run(5.0, 1.3)
    watched.run(1.0, 1.3, got=0.95)
    assert watched.run(5.0, 1.3)
    assert watched.gate.num_switches == 0


@pytest.mark.parametrize("gain", [1.1, 2.0])
def test_what_the_guard_closed_is_tried_again_soon_and_then_ever_more_rarely(gain) -> None:
    """Drafts that are said to win, and lose a third."""
    watched = Watched()
    watched.run(600.0, gain, got=0.67)
    begins_s = watched.begins_s()
    assert begins_s[0] < 8
    assert begins_s[-1] - begins_s[-2] == pytest.approx(60, abs=5)
    assert sum(watched.history) < 0.05 * len(watched.history)


def test_a_trial_that_finds_it_better_changes_it() -> None:
    watched = Watched()
    watched.run(1.0, 0.9)
    while not watched.gate.is_trial:
        watched.run(0.1, 0.9)
    assert watched.run(30.0, 1.04), "between off and on what is measured in a trial decides"
    assert not watched.gate.is_trial


@pytest.mark.parametrize("gain", [1.1, 2.0])
def test_plain_decoding_is_tried_and_costs_a_hundredth_at_most(gain) -> None:
    watched = Watched()
    watched.run(300.0, gain)
    assert watched.num_trials > 0
    closed_share = 1 - sum(watched.history) / len(watched.history)
    assert closed_share * (1 - 1 / gain) <= 0.012


def test_where_drafts_cannot_pay_nothing_is_tried() -> None:
    watched = Watched()
    watched.run(300.0, 0.5, can_pay=False)
    assert watched.num_trials == 0


def test_a_load_that_never_rests_is_guarded_and_tried_as_one_that_does() -> None:
    watched = Watched()
    for load in (4, 5) * 20:
        watched.load = load
        watched.run(0.8, gain=1.3, got=0.6)
    assert watched.history.count(True) < len(watched.history) / 5
    assert 1 <= watched.num_trials <= 8


def test_one_sequence_that_drafts_among_many_is_guarded_as_soon() -> None:
    gate = Gate(Counter())
    for tick in range(20):
        if gate.update(tick * TICK_S, 32, 1.3, can_pay=True, trial_s=0.1):
            gate.add(60, PLAIN_S, TICK_S)
    assert not gate.is_open
