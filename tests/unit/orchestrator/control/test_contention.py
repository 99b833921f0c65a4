"""What is taken for the price of drafts, as the gate switches and a target's step costs change."""

import random

import pytest

from orchestrator.control.contention import ContentionMeter
from orchestrator.control.round_costs import RoundCosts
from pilotfish.step_table import StepTable

STEP_S = 0.01
LOAD = 2


class Machine:
    """A target whose gate switches, and what it publishes."""

    def __init__(self) -> None:
        self.costs = RoundCosts(StepTable())
        self.meter = ContentionMeter(self.costs)
        self.now_s = 0.0

    def use(self, seconds: float, step_s: float, *, is_drafting: bool, load: int = LOAD) -> None:
        """A plan each tenth of a second."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.1
            self.costs.table = StepTable((1,), (round(1e9 * step_s),))
            self.meter.note(self.now_s, load, is_drafting=is_drafting)

    def contention(self) -> float:
        """What plain decoding is taken to be faster by than the steps of now, while drafts are made."""
        self.costs.table = StepTable((1,), (round(1e9 * STEP_S),))
        self.costs.is_drafting = True
        return STEP_S / self.costs.plain_s(LOAD, 1)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_what_follows_a_switch_is_learned(machine: Machine) -> None:
    for _ in range(20):
        machine.use(2.0, STEP_S, is_drafting=False)
        machine.use(2.0, 1.6 * STEP_S, is_drafting=True)
    assert machine.contention() == pytest.approx(1.6, rel=0.03)


@pytest.mark.parametrize("scatter", [0.05, 0.2])
def test_drafts_made_elsewhere_cost_nothing_however_the_costs_scatter(machine: Machine, scatter: float) -> None:
    """On a machine of its own a drafter changes nothing: what scatters both ways is no contention."""
    luck, found = random.Random(1), []
    for _ in range(200):
        machine.use(0.5, STEP_S * luck.lognormvariate(0, scatter), is_drafting=False)
        machine.use(0.5, STEP_S * luck.lognormvariate(0, scatter), is_drafting=True)
        found.append(machine.contention())
    assert sum(found) / len(found) < 1 + scatter / 5


def test_a_drafter_that_has_moved_away_is_soon_believed(machine: Machine) -> None:
    for _ in range(100):
        machine.use(0.5, STEP_S, is_drafting=False)
        machine.use(0.5, 1.6 * STEP_S, is_drafting=True)
    assert machine.contention() > 1.5
    for _ in range(16):
        machine.use(0.5, STEP_S, is_drafting=False)
        machine.use(0.5, STEP_S, is_drafting=True)
    assert machine.contention() < 1.1


def test_costs_of_long_ago_are_not_compared(machine: Machine) -> None:
    """Nobody asked for an hour after a switch: a machine that is busier by now is no drafter's work."""
    machine.use(2.0, STEP_S, is_drafting=False)
    machine.use(0.1, STEP_S, is_drafting=True)
    machine.now_s += 3600
    machine.use(2.0, 2 * STEP_S, is_drafting=True)
    machine.now_s += 3600
    machine.use(2.0, STEP_S, is_drafting=False)
    assert machine.contention() == 1


def test_another_load_is_not_compared(machine: Machine) -> None:
    machine.use(2.0, STEP_S, is_drafting=False, load=1)
    machine.use(2.0, 2 * STEP_S, is_drafting=True)
    assert machine.contention() == 1


@pytest.mark.parametrize(("contention", "pays"), [(1.0, True), (1.6, False)])
def test_steps_that_are_longer_because_of_the_drafts_do_not_make_plain_decoding_look_slow(
    virtual_replica, contention, pays
) -> None:
    """A drafter on the target's own processors, by whose work the target's step costs grow."""
    replica = virtual_replica()
    replica.contention, replica.acceptance = contention, 0.45
    requests = replica.begin_many(4)
    replica.run(20.0)
    speed = sum(replica.speed_over_plain(request, 10.0) for request in requests) / len(requests)
    assert speed > 1.1 if pays else speed > 0.95


def test_steps_that_take_long_show_their_contention_in_a_trial(virtual_replica) -> None:
    """A trial lasts until the target's costs have followed."""
    replica = virtual_replica(base_s=0.06, row_s=0.0012)
    replica.contention, replica.acceptance, replica.draft_token_s = 1.6, 0.45, 0.003
    requests = replica.begin_many(4)
    replica.run(60.0)
    speed = sum(replica.speed_over_plain(request, 60.0) for request in requests) / len(requests)
    assert speed > 0.95


def test_contention_of_one_load_says_nothing_of_another(machine: Machine) -> None:
    for _ in range(4):
        machine.use(0.5, STEP_S, is_drafting=False)
        machine.use(0.5, 1.6 * STEP_S, is_drafting=True)
    assert machine.contention() > 1.3
    assert machine.costs.plain_s(8 * LOAD, 1) == STEP_S


def test_after_a_pause_it_is_not_known_whose_costs_are_published(machine: Machine) -> None:
    """Others may have decoded plainly meanwhile: an open gate's drafts have not lengthened those steps yet."""
    for _ in range(4):
        machine.use(0.5, STEP_S, is_drafting=False)
        machine.use(0.5, 1.6 * STEP_S, is_drafting=True)
    machine.now_s += 3600
    machine.use(0.1, STEP_S, is_drafting=True)
    assert machine.costs.plain_s(LOAD, 1) == STEP_S
    machine.use(1.0, STEP_S, is_drafting=True)
    assert machine.costs.plain_s(LOAD, 1) < 0.8 * STEP_S
