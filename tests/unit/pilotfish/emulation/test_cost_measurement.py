"""What is measured of a core whose steps take a known time is that time."""

import pytest

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.cost_measurement import CostMeasurement, MeasurementPlan, ShapeTimes
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.errors import ConfigError
from pilotfish.messages import Event
from pilotfish.types import Limits, ModelInfo

COST = RooflineCost(overhead_s=0.001, weights_s=0.008, token_s=0.0005, context_token_s=1e-6)
PLAN = MeasurementPlan(num_sequences=(1, 4), num_tokens=(1, 4, 8, 32, 64), samples=2, long_context_tokens=256)


class TimedCore(EmulatedCore):
    """Its steps move a clock by what they cost."""

    now_s = 0.0

    def step(self) -> list[Event]:
        events = super().step()
        self.now_s += self.step_s
        return events


@pytest.fixture
def core() -> TimedCore:
    model = ModelInfo(model_id="m", tokenizer_fingerprint="", vocab_size=256, max_context_tokens=1024)
    return TimedCore(model, Limits(max_draft_tokens=7, max_sequences=8), HashLanguageModel(), step_cost=COST)


def measurement(core: TimedCore, progress: list[tuple[int, int]] | None = None) -> CostMeasurement:
    seen = progress if progress is not None else []
    return CostMeasurement(core, PLAN, lambda *state: seen.append(state), clock=lambda: core.now_s)


def test_a_target_s_table_is_its_cost(core: TimedCore) -> None:
    measured = measurement(core).target()
    assert measured.context_token_s == pytest.approx(COST.context_token_s, rel=0.05)
    for sequences, tokens in ((1, 1), (1, 4), (1, 8), (4, 4), (4, 8), (4, 32)):
        assert measured.step_s(sequences, tokens) == pytest.approx(COST.step_s(sequences, tokens), rel=0.01)
    # A prefill, which no verification is long enough for.
    assert measured.step_s(1, 64) == pytest.approx(COST.step_s(1, 64), rel=0.01)


def test_a_drafter_s_table_is_its_cost(core: TimedCore) -> None:
    measured = measurement(core).draft()
    assert measured.step_s(1, 1) == pytest.approx(COST.step_s(1, 1, 64), rel=0.01)
    assert measured.step_s(4, 4) == pytest.approx(COST.step_s(4, 4, 4 * 64), rel=0.01)


@pytest.mark.parametrize("is_shared", [False, True])
def test_opened_sequences_are_closed_whatever_happens(core: TimedCore, is_shared: bool) -> None:
    timer = ShapeTimes(core, lambda: core.now_s)
    with timer.opened(4, 64, is_shared=is_shared) as sequences:
        assert timer.verify_s(sequences, 2) == pytest.approx(COST.step_s(4, 8, 4 * 65), rel=0.01)
    with pytest.raises(ConfigError, match="cannot be measured"), timer.opened(2, 1 << 18, is_shared=is_shared):
        raise AssertionError("the KV cache has no room for them")
    assert not timer.lengths
    assert not core.has_work
    with timer.opened(8, 64, is_shared=is_shared) as sequences:  # as many as it takes
        assert len(sequences) == 8
