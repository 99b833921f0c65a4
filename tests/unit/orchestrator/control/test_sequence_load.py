"""What a row costs on the replica where a request decodes."""

from __future__ import annotations

from collections.abc import Callable

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


def decoding(state: ControlState, step_s: Callable[[float], float] = lambda rows: 0.009 + 0.001 * rows) -> Controller:
    """A request that decodes on a replica whose steps take so long."""
    controller = Controller(request(), state)
    controller.begin(
        RoundResult(now_s=0.0, num_output_tokens=1, num_remaining_tokens=9, replica_id="a", step_table=table_of(step_s))
    )
    return controller


@pytest.mark.parametrize(("name", "price"), [("eagle3", 0.1), ("model", 0.1), ("suffix", 0), ("ngram", 0), ("x", 0)])
def test_trees_of_models_and_heads_pay_the_share_of_a_plain_step_that_a_row_takes(name: str, price: float) -> None:
    assert decoding(ControlState(SpeculationConfig())).load.row_price(drafter(name), 8) == pytest.approx(price)


def test_among_others_a_row_costs_all_of_them() -> None:
    state = ControlState(SpeculationConfig())
    controllers = [decoding(state) for _ in range(4)]
    # Each with a row more, a plain step of 13 ms takes 17.
    assert controllers[0].load.row_price(drafter("eagle3"), 7) == pytest.approx(4 / 13)
    for controller in controllers[1:]:
        controller.close()
    assert controllers[0].load.row_price(drafter("eagle3"), 8) == pytest.approx(0.1)


def test_rows_that_only_large_trees_lengthen_the_step_by_cost_their_average() -> None:
    controller = decoding(ControlState(SpeculationConfig()), lambda rows: 0.010 + 0.001 * max(0, rows - 8))
    prices = [controller.load.row_price(drafter("eagle3"), max_nodes) for max_nodes in (7, 15)]
    assert prices == pytest.approx([0.005, 0.8 / 15])


@pytest.mark.parametrize("slope", [-0.0001, 0.1])
def test_a_price_is_a_share(slope: float) -> None:
    controller = decoding(ControlState(SpeculationConfig()), lambda rows: 0.01 + slope * rows)
    assert 0 < controller.load.row_price(drafter("eagle3"), 8) <= 1


def test_a_replica_that_publishes_no_costs_has_no_price() -> None:
    controller = Controller(request(), ControlState(SpeculationConfig()))
    controller.begin(RoundResult(now_s=0.0, num_output_tokens=1, num_remaining_tokens=9, replica_id="a"))
    assert controller.load.row_price(drafter("eagle3"), 8) == 0


def test_before_anything_is_known_there_is_no_price() -> None:
    assert Controller(request(), ControlState(SpeculationConfig())).load.row_price(drafter("eagle3"), 8) == 0
