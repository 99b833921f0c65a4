import pytest

from pilotfish.engine.step_trend import StepTrend


def test_a_line_through_the_steps():
    trend = StepTrend()
    for num_rows in (1, 6, 12, 48, 6, 96):
        trend.add(num_rows, 8_000_000 + 20_000 * num_rows)
    assert trend.row_ns == pytest.approx(20_000)
    assert trend.fixed_ns == pytest.approx(8_000_000)


def test_steps_of_one_size_are_all_fixed():
    trend = StepTrend()
    for _ in range(20):
        trend.add(6, 8_000_000)
    assert trend.row_ns == 0
    assert trend.fixed_ns == pytest.approx(8_000_000)


def test_nothing_is_known_before_the_first_step_with_rows():
    trend = StepTrend()
    trend.add(0, 5)
    assert trend.fixed_ns == 0
    assert trend.row_ns == 0


def test_time_that_falls_with_rows_is_noise():
    trend = StepTrend()
    trend.add(10, 9_000_000)
    trend.add(20, 8_000_000)
    assert trend.row_ns == 0


def test_late_steps_count_most():
    trend = StepTrend()
    for _ in range(200):
        trend.add(4, 1_000_000)
    for _ in range(300):
        trend.add(4, 3_000_000)
    assert trend.fixed_ns == pytest.approx(3_000_000, rel=0.01)
