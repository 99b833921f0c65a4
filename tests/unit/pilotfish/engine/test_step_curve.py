import pytest

from pilotfish.engine.step_curve import StepCurve

MS = 1_000_000


def roofline(*rows: int) -> StepCurve:
    """Steps of so many rows: 8 ms, and 0.1 ms a row from 80 on."""
    curve = StepCurve()
    for num_rows in rows:
        curve.add(num_rows, max(8 * MS, num_rows * MS // 10))
    return curve


def test_between_what_was_measured_it_is_the_least_that_a_roofline_allows() -> None:
    curve = roofline(1, 160)
    assert [curve.step_ns(rows) for rows in (1, 40, 80, 120, 160)] == [8 * MS, 8 * MS, 8 * MS, 12 * MS, 16 * MS]
    assert curve.fixed_ns == 8 * MS


def test_beyond_what_was_measured_it_is_flat_before_and_on_the_last_slope_after() -> None:
    curve = roofline(80, 160)
    assert (curve.step_ns(20), curve.step_ns(240)) == (8 * MS, 24 * MS)
    assert roofline(160).step_ns(320) == 16 * MS


def test_between_sizes_that_were_measured_more_than_once_it_lies_on_a_line() -> None:
    curve = roofline(16, 16, 160, 160)
    assert [curve.interpolated_ns(rows) for rows in (4, 16, 88, 160, 320)] == [
        8 * MS,
        8 * MS,
        12 * MS,
        16 * MS,
        16 * MS,
    ]
    curve.add(80, 100 * MS)
    assert curve.interpolated_ns(88) == 12 * MS, "once is not enough"
    curve.add(80, 8 * MS)
    assert curve.interpolated_ns(80) == 8 * MS, "the first one of a size may have been long"
    assert roofline(16, 160).interpolated_ns(88) == StepCurve().interpolated_ns(88) == 0


def test_what_small_steps_took_is_not_forgotten_where_all_are_large() -> None:
    curve = roofline(1, 72, *[144] * 1000)
    assert curve.step_ns(72) == 8 * MS
    assert curve.step_ns(144) == pytest.approx(14.4 * MS)


def test_nothing_is_known_before_the_first_step_with_rows() -> None:
    curve = StepCurve()
    curve.add(0, 5)
    assert curve.fixed_ns == 0


def test_time_that_falls_with_rows_is_noise() -> None:
    curve = StepCurve()
    curve.add(10, 9 * MS)
    curve.add(40, 8 * MS)
    assert curve.step_ns(10) == 9 * MS
    assert [curve.step_ns(rows) for rows in (20, 40, 80)] == [8 * MS, 8 * MS, 8 * MS]


def test_late_steps_of_a_size_count_most() -> None:
    curve = StepCurve()
    for _ in range(200):
        curve.add(4, 1 * MS)
    for _ in range(30):
        curve.add(4, 3 * MS)
    assert curve.step_ns(4) == pytest.approx(3 * MS, rel=0.01)
