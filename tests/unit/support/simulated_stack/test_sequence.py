from __future__ import annotations

import pytest

from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import Mode
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from tests.support.simulated_stack.controllers import controller
from tests.support.simulated_stack.sequence import SimulatedSequence
from tests.support.simulated_stack.stack import SimulatedStack
from tests.support.simulated_stack.world import NETWORK_S

A100 = load_profile("a100-70b")


def answered(
    mode: Mode, num_tokens: int, acceptance: float = 1.0, config: SpeculationConfig = SpeculationConfig()
) -> tuple[SimulatedSequence, float]:
    """A sequence alone on its replicas, and how long its answer took."""
    stack = SimulatedStack(A100, acceptance)
    sequence = SimulatedSequence(stack, controller(mode, ControlState(config), 8), num_tokens)
    while sequence.num_remaining:
        stack.world.run(stack.world.now_s + 0.0001)
    assert stack.num_tokens == num_tokens
    return sequence, stack.world.now_s


@pytest.mark.parametrize(("num_tokens", "num_drafts"), [(11, [8]), (12, [8, 1]), (18, [8, 7]), (19, [8, 8])])
def test_always_on_drafts_what_the_answer_has_room_for(num_tokens: int, num_drafts: list[int]) -> None:
    counts = answered("on", num_tokens)[0].controller.num_rounds_by_k
    assert sorted(filter(None, counts.elements()), reverse=True) == num_drafts


@pytest.mark.parametrize("mode", ["off", "on", "auto"])
@pytest.mark.parametrize("num_tokens", [1, 2, 40])
def test_an_answer_has_as_many_tokens_as_were_asked_for(mode: Mode, num_tokens: int) -> None:
    for acceptance in (0.0, 0.5, 1.0):
        answered(mode, num_tokens, acceptance)


def test_runs_are_extended_without_losing_a_step_to_a_round_trip() -> None:
    in_runs = answered("auto", 160, config=SpeculationConfig(disable_by_batch_size=1))[1]
    assert in_runs == pytest.approx(answered("off", 160)[1], abs=3 * NETWORK_S)


def test_the_target_drops_the_run_of_a_sequence_that_is_stopped() -> None:
    stack = SimulatedStack(A100, 0.5)
    stays, goes = (SimulatedSequence(stack, controller("off", ControlState(SpeculationConfig()), 8)) for _ in range(2))
    stack.world.run(1.0)
    assert stack.target.load.num_sequences_decoding == 2
    goes.stop()
    stack.world.run(1.1)
    assert stack.target.load.num_sequences_decoding == 1
    before = stays.num_remaining
    stack.world.run(1.2)
    assert stays.num_remaining < before
