"""The table that an engine begins with, measured on a core whose steps take what a model of costs says."""

import random

import pytest

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.engine.process.calibration import BUDGET_S, calibrate
from pilotfish.messages import Event
from pilotfish.types import Limits, ModelInfo


class TimedCore(EmulatedCore):
    """Its steps move its clock."""

    def __init__(self, cost: RooflineCost, *, max_sequences: int = 64, kv_cache_tokens: int = 1 << 14) -> None:
        model = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=1000, max_context_tokens=512)
        limits = Limits(max_draft_tokens=8, max_sequences=max_sequences)
        super().__init__(model, limits, HashLanguageModel(), step_cost=cost, kv_cache_tokens=kv_cache_tokens)
        self.now_s = 0.0

    def step(self, max_rows: int | None = None) -> list[Event]:
        events = super().step(max_rows)
        self.now_s += self.step_s
        return events


COST = RooflineCost(weights_s=0.002, token_s=0.0001)


def test_the_table_is_what_steps_take() -> None:
    core = TimedCore(COST)
    costs = calibrate(core, 128, clock=lambda: core.now_s)
    for num_rows in (1, 7, 12, 16, 24, 96, 128):
        assert costs.step_ns(num_rows) == pytest.approx(1e9 * COST.step_s(1, num_rows), rel=0.02)
    assert core.num_sequences == 0


class DisturbedCore(TimedCore):
    """Another process makes its steps three times as long until it ends, and a quarter of those that follow."""

    _random = random.Random(1)

    def step(self, max_rows: int | None = None) -> list[Event]:
        start_s = self.now_s
        events = super().step(max_rows)
        if start_s < 0.1 or self._random.random() < 0.25:
            self.now_s += 2 * (self.now_s - start_s)
        return events


def test_other_processes_do_not_show_in_the_table() -> None:
    core = DisturbedCore(COST)
    costs = calibrate(core, 32, clock=lambda: core.now_s)
    for num_rows in (1, 2, 3, 7, 12, 16, 24):
        assert costs.step_ns(num_rows) == pytest.approx(1e9 * COST.step_s(1, num_rows), rel=0.1)


def test_it_ends_with_its_budget_and_what_is_missing_is_learned() -> None:
    core = TimedCore(RooflineCost(weights_s=0.2, token_s=0.0))
    costs = calibrate(core, 512, clock=lambda: core.now_s)
    assert core.now_s < 2 * BUDGET_S
    assert costs.step_ns(1) == pytest.approx(0.2e9)
    for _ in range(100):
        costs.add(256, 0, 0.9e9)
    assert costs.step_ns(256) == pytest.approx(0.9e9, rel=0.01)


def test_sizes_for_which_the_cache_is_too_small_are_left_out() -> None:
    core = TimedCore(COST, kv_cache_tokens=192)
    costs = calibrate(core, 512, clock=lambda: core.now_s)
    for num_rows in (1, 7, 9):
        assert costs.step_ns(num_rows) == pytest.approx(1e9 * COST.step_s(1, num_rows), rel=0.02)
    assert costs.step_ns(512) >= costs.step_ns(9)
    assert core.num_sequences == 0


@pytest.mark.parametrize("limits", [{"max_sequences": 2}, {"kv_cache_tokens": 256}])
def test_an_engine_that_can_hold_few_sequences_is_measured_as_far_as_it_goes(limits: dict[str, int]) -> None:
    core = TimedCore(COST, **limits)
    costs = calibrate(core, 512, clock=lambda: core.now_s)
    assert costs.step_ns(9) == pytest.approx(1e9 * COST.step_s(1, 9), rel=0.02)
    assert core.num_sequences == 0
