"""The planner's formulas against simulated engines, whose steps are scheduled and batched."""

from dataclasses import replace
from typing import Literal

import pytest

from orchestrator.control.replica_state import ControlState
from pilotfish.bench.load.workload import parse_lengths
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.places import drafted
from pilotfish.planning.planner import HANDLING_S, Planner
from pilotfish.planning.workload import poisson_workload
from tests.support.simulated_stack.controller_sequence import ControllerSequence
from tests.support.simulated_stack.controller_stack import ControllerStack
from tests.support.simulated_stack.controllers import controller
from tests.support.simulated_stack.placed_stack import PlacedStack, Way
from tests.support.simulated_stack.steady_state import steady_tokens_per_s
from tests.support.simulated_stack.world import NETWORK_S

ACCEPTANCE = 0.8
WARM_UP_S = 2.0


@pytest.mark.parametrize(
    ("name", "batch", "k"),
    [("a100-70b", 1, 5), ("a100-70b", 64, 2), ("a100-70b", 64, 0), ("h100-70b-tp4", 4, 5), ("h100-70b-tp4", 16, 5)],
)
def test_rounds_take_what_they_take_with_the_engines(name: str, batch: int, k: int) -> None:
    profile = load_profile(name)
    stack, state = ControllerStack(profile, ACCEPTANCE), ControlState(SpeculationConfig())
    for _ in range(batch):
        ControllerSequence(stack, controller("on" if k else "off", state, k))
    stack.world.run(WARM_UP_S)
    before, seconds = stack.num_tokens, max(3.0, 20 / batch)
    stack.world.run(WARM_UP_S + seconds)
    measured_s = seconds * batch / (stack.num_tokens - before)
    model = DecodingModel(
        profile,
        DraftAssumptions(acceptance=(ACCEPTANCE,), ahead_tokens=0),
        context_tokens=0,
        round_trip_s=2 * NETWORK_S,
        handling_s=0.0,
    )
    assert model.token_s(batch, k) == pytest.approx(measured_s, rel=0.07)


@pytest.mark.parametrize("one_way_s", [0.0002, 0.002])
@pytest.mark.parametrize(
    ("drafter", "is_in_target", "ahead"),
    [
        ("EAGLE-3 head", True, "off"),
        ("EAGLE-3 head", False, "off"),
        ("EAGLE-3 head", False, "on"),
        ("1B model", False, "on"),
    ],
)
@pytest.mark.parametrize("name", ["a100-70b", "h100-70b-tp4"])
def test_one_request_is_as_fast_as_is_planned_wherever_its_drafts_are_made(
    name: str, drafter: str, is_in_target: bool, ahead: Literal["off", "on"], one_way_s: float
) -> None:
    profile, k = load_profile(name), 4
    workload = poisson_workload(1.0, parse_lengths("512"), parse_lengths("256"))
    planner = Planner(profile=profile, drafting=DraftAssumptions(ahead_tokens=60), workload=workload)
    one = replace(profile.drafter(drafter), drafts_ahead=ahead == "on")
    model = drafted(planner, one, Placement.COLOCATED if is_in_target else Placement.SEPARATE, one_way_s)
    way = Way(
        drafter=one,
        in_target=is_in_target,
        draft_ahead=ahead,
        target_one_way_s=one_way_s,
        draft_one_way_s=one_way_s,
        handling_s=HANDLING_S,
    )
    rates = [
        steady_tokens_per_s(PlacedStack(profile, way), "on", k, 1, 1000, first_number=1000 * text) for text in range(3)
    ]
    assert 1 / model.token_s(1, k) == pytest.approx(sum(rates) / len(rates), rel=0.07)
