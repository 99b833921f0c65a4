from __future__ import annotations

from typing import Any

import pytest

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.emulation.profiles import load_profile
from pilotfish.errors import ConfigError
from pilotfish.planning.drafting import Drafting, Placement
from pilotfish.planning.goals import Goals
from pilotfish.planning.planner import Fleet, Planner
from pilotfish.planning.workload import PoissonWorkload


def planner(rate: float = 30.0, **changes: Any) -> Planner:
    values: dict[str, Any] = {
        "profile": load_profile("a100-70b"),
        "drafting": Drafting(),
        "workload": PoissonWorkload(rate, parse_lengths("200"), parse_lengths("100")),
        "num_requests": 1500,
        "stepwise": False,
    }
    return Planner(**(values | changes))


@pytest.mark.parametrize("placement", [Placement.SEPARATE, Placement.NONE])
def test_the_cheapest_fleet_meets_the_goals_and_one_target_less_does_not(placement: Placement) -> None:
    ours, goals = planner(), Goals(token_s=0.012)
    fleet = ours.smallest(placement, goals)
    assert goals.are_met(ours.simulate(fleet))
    assert fleet.num_targets > 1
    ratio = fleet.num_targets / fleet.num_drafters if fleet.num_drafters else 1
    drafters = -(-(fleet.num_targets - 1) // round(ratio)) if fleet.num_drafters else 0
    assert not goals.are_met(ours.simulate(Fleet(placement, fleet.num_targets - 1, drafters)))


def test_costs() -> None:
    assert planner().num_gpus(Fleet(Placement.SEPARATE, 4, 2)) == 4 * 8 + 2
    assert planner(profile=load_profile("cpu")).num_gpus(Fleet(Placement.SEPARATE, 4, 2)) == 6


def test_a_goal_below_one_sequence_alone_names_the_limit() -> None:
    with pytest.raises(
        ConfigError, match=r"no fleet reaches 1 ms a token: .* takes \d\.\d+ ms, decoding with \d draft"
    ):
        planner().smallest(Placement.SEPARATE, Goals(token_s=0.001))
    with pytest.raises(ConfigError, match="decoding plainly"):
        planner().smallest(Placement.NONE, Goals(token_s=0.001))


def test_a_goal_below_reading_the_prompt_names_the_limit() -> None:
    with pytest.raises(ConfigError, match=r"first token within 5 ms for 95% .* reading the prompt alone takes"):
        planner().smallest(Placement.SEPARATE, Goals(first_token_s=0.005))


def test_simulated_once() -> None:
    ours = planner()
    fleet = Fleet(Placement.NONE, 2)
    assert ours.simulate(fleet) is ours.simulate(fleet)


def test_scaled_plans_share_rates() -> None:
    ours = planner()
    rates = ours.rates(Placement.NONE)
    scaled = ours.scaled(3)
    assert scaled.workload.rate == 90
    assert scaled.rates(Placement.NONE) is rates
    assert scaled.simulate(Fleet(Placement.NONE, 9)).num_finished == 1350


@pytest.mark.parametrize(("num_targets", "num_drafters", "ratio"), [(8, 2, 4.0), (9, 2, 4.0), (2, 4, 0.5), (3, 0, 1.0)])
def test_targets_per_drafter(num_targets: int, num_drafters: int, ratio: float) -> None:
    assert Fleet(Placement.SEPARATE, num_targets, num_drafters).targets_per_drafter == ratio
