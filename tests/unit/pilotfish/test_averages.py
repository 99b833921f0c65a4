import pytest

from pilotfish.averages import ClippedAverage, MedianWindow


def test_a_median_ignores_outliers_and_follows_a_new_level_after_five_of_nine() -> None:
    window = MedianWindow()
    assert window.value is None
    for value in [10.0] * 9:
        window.add(value)
    levels = []
    for _ in range(6):
        window.add(20.0)
        levels.append(window.value)
    assert levels == [10, 10, 10, 10, 20, 20]


def test_of_two_values_the_smaller_is_believed() -> None:
    window = MedianWindow()
    window.add(30.0)
    window.add(20.0)
    assert (window.value, len(window)) == (20.0, 2)


def test_a_clipped_average_hardly_moves_for_one_outlier_but_follows_a_mixture() -> None:
    average = ClippedAverage()
    for index in range(40):
        average.add(1.0 if index % 2 else 1.2)
    before = average.value
    average.add(100.0)
    assert average.value < before + 0.1
    mixed = ClippedAverage()
    for index in range(200):
        mixed.add(4.0 if index % 4 == 0 else 0.0)
    assert mixed.value == pytest.approx(1.0, abs=0.4)
