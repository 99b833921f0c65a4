import msgspec
import pytest

from orchestrator.control.step_costs import StepCosts
from pilotfish.profiles import RooflineCost
from pilotfish.types import LoadReport

ROOFLINE = RooflineCost(weights_s=0.008, token_s=0.0001)


def report(num_sequences: int, num_tokens: int, step_s: float) -> LoadReport:
    return LoadReport(
        num_sequences_decoding=num_sequences, num_step_tokens=num_tokens, step_time_ns=round(step_s * 1e9)
    )


def test_nothing_is_known_at_first() -> None:
    assert not StepCosts().is_known
    assert StepCosts().step_s(1, 1) == 0
    assert StepCosts(ROOFLINE).is_known
    assert StepCosts(ROOFLINE).step_s(8, 160) == pytest.approx(0.016)


def test_between_what_was_measured_steps_are_interpolated_and_below_it_no_shorter() -> None:
    costs = StepCosts()
    costs.add(report(4, 4, 0.010))
    costs.add(report(4, 24, 0.020))
    assert costs.step_s(4, 4) == pytest.approx(0.010)
    assert costs.step_s(4, 14) == pytest.approx(0.015, rel=0.05)
    assert costs.step_s(1, 1) == pytest.approx(0.010)


def test_what_was_met_seldom_is_forgotten_and_what_was_met_often_is_not() -> None:
    """Two slow steps of 16 rows would make plain decoding look slow for as long as sequences speculate."""
    costs = StepCosts()
    for num_tokens, num_steps in ((24, 4), (48, 5)):
        for _ in range(num_steps):
            costs.add(report(4, num_tokens, 0.1))
    for _ in range(600):
        costs.add(report(4, 4, 0.010))
    assert costs.step_s(4, 48) == pytest.approx(0.1)
    assert costs.step_s(4, 24) == pytest.approx(0.05, rel=0.1), "between those beside it"


def test_beyond_what_was_measured_the_slope_goes_on() -> None:
    costs = StepCosts()
    costs.add(report(8, 8, 0.010))
    assert costs.step_s(8, 64) == pytest.approx(0.010), "one point has no slope: the best is hoped for"
    costs.add(report(8, 48, 0.018))
    assert costs.step_s(8, 88) == pytest.approx(0.026)


def test_a_profile_keeps_its_shape_and_gets_the_measured_level() -> None:
    costs = StepCosts(ROOFLINE)
    for _ in range(3):
        costs.add(report(1, 1, 0.012))
    assert costs.step_s(1, 1) == pytest.approx(0.012)
    assert costs.step_s(64, 160) == pytest.approx(0.024)


def mixed(num_sequences: int, num_tokens: int, step_s: float, num_prefill_tokens: int = 100) -> LoadReport:
    """A step that takes step_s beside a prefill that is charged half a second."""
    return msgspec.structs.replace(
        report(num_sequences, num_tokens + num_prefill_tokens, step_s + 0.5),
        num_step_prefill_tokens=num_prefill_tokens,
        step_prefill_time_ns=500_000_000,
    )


def test_steps_with_prefills_teach_only_where_there_are_no_others() -> None:
    costs = StepCosts()
    assert costs.add(report(4, 4, 0.010))
    for _ in range(31):
        assert costs.add(mixed(4, 4, 0.030))
    assert costs.step_s(4, 4) == pytest.approx(0.010)
    for _ in range(10):
        assert costs.add(mixed(4, 4, 0.030))
    assert costs.step_s(4, 4) == pytest.approx(0.030)
    for _ in range(10):
        costs.add(report(4, 4, 0.010))
        costs.add(mixed(4, 4, 0.030))
    assert costs.step_s(4, 4) == pytest.approx(0.010)


def test_steps_in_which_nobody_decodes_teach_nothing() -> None:
    costs = StepCosts()
    costs.add(report(1, 1, 0.010))
    for _ in range(64):
        assert not costs.add(mixed(0, 0, 1.0))
    assert not costs.add(report(0, 100, 1.0))
    assert not costs.add(LoadReport())
    assert costs.step_s(1, 512) == pytest.approx(0.010)


def test_a_slow_step_is_not_believed() -> None:
    costs = StepCosts()
    for step_s in (0.010, 0.010, 0.5, 0.010):
        costs.add(report(1, 1, step_s))
    assert costs.step_s(1, 1) == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("profile", "num_full", "num_beside"),
    [(None, 16, 15), (None, 16, 17), (ROOFLINE, 32, 31), (None, 32, 33)],
)
def test_sizes_side_by_side_are_learned_apart(profile: RooflineCost | None, num_full: int, num_beside: int) -> None:
    """Kernels work on tiles, which are full with 16 rows, or 32."""
    costs = StepCosts(profile)
    for _ in range(20):
        costs.add(report(num_full, num_full, 0.0143))
        costs.add(report(num_beside, num_beside, 0.0162))
    for _ in range(20):
        costs.add(report(num_beside, num_beside, 0.0162))
    assert costs.step_s(num_full, num_full) == pytest.approx(0.0143)
    assert costs.step_s(num_beside, num_beside) == pytest.approx(0.0162)
