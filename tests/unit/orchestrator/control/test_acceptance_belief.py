import random

import pytest

from orchestrator.control.acceptance_belief import AcceptanceBelief
from pilotfish.speculation.statistics import DecayedAcceptance


def shared(acceptance: float) -> DecayedAcceptance:
    record = DecayedAcceptance(half_life_rounds=256)
    rng = random.Random(1)
    for _ in range(400):
        record.add(4, accepted(rng, acceptance))
    return record


def accepted(rng: random.Random, acceptance: float) -> int:
    return next((i for i in range(4) if rng.random() >= acceptance), 4)


def test_a_new_request_believes_what_all_know() -> None:
    assert AcceptanceBelief(shared(0.8)).probabilities(2) == pytest.approx((0.8, 0.8), abs=0.05)


def test_chance_moves_it_little() -> None:
    beliefs = []
    for seed in range(20):
        belief, rng = AcceptanceBelief(shared(0.7)), random.Random(seed)
        for _ in range(64):
            belief.add(4, accepted(rng, 0.7))
        beliefs.append(belief.probabilities(1)[0])
    assert max(abs(value - 0.7) for value in beliefs) < 0.12


@pytest.mark.parametrize(("before", "after"), [(0.8, 0.05), (0.05, 0.8)])
def test_another_text_is_noticed_soon(before: float, after: float) -> None:
    belief, rng = AcceptanceBelief(shared(before)), random.Random(3)
    for _ in range(50):
        belief.add(4, accepted(rng, before))
    for _ in range(20):
        belief.add(4, accepted(rng, after))
    assert belief.probabilities(1)[0] == pytest.approx(after, abs=0.25)
