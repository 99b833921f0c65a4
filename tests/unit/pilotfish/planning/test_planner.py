from __future__ import annotations

from typing import Any

import pytest

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.emulation.profiles import load_profile
from pilotfish.errors import ConfigError
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.fleet import Goals
from pilotfish.planning.planner import Fleet, Planner
from pilotfish.planning.workload import poisson_workload


def planner(rate: float = 30.0, **changes: Any) -> Planner:
    values: dict[str, Any] = {
        "profile": load_profile("a100-70b"),
        "drafting": DraftAssumptions(),
        "workload": poisson_workload(rate, parse_lengths("200"), parse_lengths("100")),
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


def test_a_goal_below_one_sequence_alone_names_the_limit() -> None:
    with pytest.raises(
        ConfigError, match=r"no fleet reaches 1 ms a token: .* takes \d\.\d+ ms, decoding with \d draft"
    ):
        planner().smallest(Placement.SEPARATE, Goals(token_s=0.001))
    with pytest.raises(ConfigError, match="decoding plainly"):
        planner().smallest(Placement.NONE, Goals(token_s=0.001))
