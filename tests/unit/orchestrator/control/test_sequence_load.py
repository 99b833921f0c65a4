"""How large a tree is free beside those who decode on the replica."""

from __future__ import annotations

import pytest

from orchestrator.control.controller import Controller
from orchestrator.control.decision import RoundResult
from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.types import ModelInfo, SamplingParams
from tests.unit.orchestrator.control.conftest import table_of


def drafter(name: str) -> ModelInfo:
    return ModelInfo(model_id="m", tokenizer_fingerprint="t", vocab_size=9, max_context_tokens=99, proposer=name)


def request() -> GenerationRequest:
    return GenerationRequest(
        prompt_token_ids=(1,), sampling=SamplingParams(), speculation=SpeculationOptions(), num_speculative_tokens=5
    )


def decoding(state: ControlState) -> Controller:
    """A request that decodes on a replica which takes 12 rows in the time of one."""
    controller = Controller(request(), state)
    table = table_of(lambda rows: 0.01 * -(-rows // 12))
    controller.begin(
        RoundResult(now_s=0.0, num_output_tokens=1, num_remaining_tokens=9, replica_id="a", step_table=table)
    )
    return controller


@pytest.mark.parametrize(("name", "num_nodes"), [("eagle3", 11), ("model", 11), ("suffix", 5), ("ngram", 5), ("x", 5)])
def test_trees_of_models_and_heads_fill_what_the_step_has_room_for(name: str, num_nodes: int) -> None:
    assert decoding(ControlState(SpeculationConfig())).load.num_free_nodes(drafter(name), 5) == num_nodes


def test_among_others_there_is_less_room() -> None:
    state = ControlState(SpeculationConfig())
    controllers = [decoding(state) for _ in range(4)]
    assert controllers[0].load.num_free_nodes(drafter("eagle3"), 2) == 2
    for controller in controllers[1:]:
        controller.close()
    assert controllers[0].load.num_free_nodes(drafter("eagle3"), 2) == 11


def test_on_a_replica_that_publishes_no_costs_there_are_chains() -> None:
    controller = Controller(request(), ControlState(SpeculationConfig()))
    controller.begin(RoundResult(now_s=0.0, num_output_tokens=1, num_remaining_tokens=9, replica_id="a"))
    assert controller.load.num_free_nodes(drafter("eagle3"), 5) == 5


def test_before_anything_is_known_there_are_chains() -> None:
    assert Controller(request(), ControlState(SpeculationConfig())).load.num_free_nodes(drafter("eagle3"), 5) == 5
