import pytest

from orchestrator.drafting.averages import ClippedAverage


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
