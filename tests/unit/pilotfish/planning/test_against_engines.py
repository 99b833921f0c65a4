"""The planner's formulas against simulated engines, whose steps are scheduled and batched."""

import pytest

from orchestrator.control.replica_state import ControlState
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import DraftAssumptions
from tests.support.simulated_stack.controllers import controller
from tests.support.simulated_stack.sequence import SimulatedSequence
from tests.support.simulated_stack.stack import SimulatedStack
from tests.support.simulated_stack.world import NETWORK_S

ACCEPTANCE = 0.8
WARM_UP_S = 2.0


@pytest.mark.parametrize(
    ("name", "batch", "k"),
    [("a100-70b", 1, 5), ("a100-70b", 64, 2), ("a100-70b", 64, 0), ("h100-70b-tp4", 4, 5), ("h100-70b-tp4", 16, 5)],
)
def test_rounds_take_what_they_take_with_the_engines(name: str, batch: int, k: int) -> None:
    profile = load_profile(name)
    stack, state = SimulatedStack(profile, ACCEPTANCE), ControlState(SpeculationConfig())
    for _ in range(batch):
        SimulatedSequence(stack, controller("on" if k else "off", state, k))
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
