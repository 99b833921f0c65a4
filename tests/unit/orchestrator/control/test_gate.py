"""On or off for all that decode on a replica: by what is predicted, and by what was got."""

from __future__ import annotations

from collections import Counter

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


def test_a_load_that_never_rests_is_guarded_and_tried_as_one_that_does() -> None:
    watched = Watched()
    for load in (4, 5) * 20:
        watched.load = load
        watched.run(0.8, gain=1.3, got=0.6)
    assert watched.history.count(True) < len(watched.history) / 5
    assert 1 <= watched.num_trials <= 8


def test_a_replica_that_is_asked_now_and_then_is_not_tried_at_every_answer() -> None:
    watched = Watched(load=1)
    for _ in range(15):
        watched.run(0.8, gain=2.0)
        watched.now_s += 20
    assert watched.num_trials <= 1


def closed_after_a_bad_beginning(gain: float) -> Watched:
    """A gate that its first seconds have closed, though drafts are predicted to be worth as much as plain decoding."""
    watched = Watched()
    watched.run(3, gain=1.2, got=0.7)
    assert not watched.gate.is_open
    del watched.history[:]
    watched.num_trials = 0
    watched.run(8, gain=gain, got=gain)
    return watched


def test_a_trial_lasts_as_long_as_it_costs_little() -> None:
    """A second of one text says little of the traffic."""
    watched = closed_after_a_bad_beginning(gain=1.0)
    assert watched.num_trials >= 1
    assert watched.history.count(True) * TICK_S >= 1.5 * watched.num_trials
    assert closed_after_a_bad_beginning(gain=0.8).history.count(True) * TICK_S < 1


def test_a_trial_ends_as_soon_as_it_is_clear_that_it_loses() -> None:
    watched = Watched()
    watched.run(3, gain=1.2, got=0.7)
    del watched.history[:]
    watched.num_trials = 0
    watched.run(8, gain=1.0, got=0.6)
    assert watched.num_trials >= 1
    assert watched.history.count(True) * TICK_S <= 0.7 * watched.num_trials
