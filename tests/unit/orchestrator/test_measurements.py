import pytest

from orchestrator.measurements import Measurements, MovingAverage, StepTimes


def test_an_average_starts_at_its_first_value_and_follows() -> None:
    average = MovingAverage()
    assert average.value is None
    average.add(10)
    assert average.value == 10
    for _ in range(50):
        average.add(20)
    assert average.value == pytest.approx(20, abs=0.01)


def test_a_run_is_averaged_over_its_tokens() -> None:
    times = StepTimes()
    times.add_decode(0.4, 8)
    assert times.decode_s == pytest.approx(0.05)


def test_verifying_what_was_never_measured_is_interpolated() -> None:
    times = StepTimes()
    times.add_decode(0.010, 1)
    assert times.verify_s(3) == pytest.approx(0.010)
    times.add_verify(0.014, 4)
    assert times.verify_s(4) == pytest.approx(0.014)
    assert times.verify_s(2) == pytest.approx(0.012)
    assert times.verify_s(8) == pytest.approx(0.014)
    times.add_verify(0.022, 8)
    assert times.verify_s(6) == pytest.approx(0.018)


def test_proposers_are_measured_apart() -> None:
    measurements = Measurements()
    measurements.proposer("draft").add_propose(0.01, 5)
    assert measurements.proposer("draft").propose_s(3) == pytest.approx(0.006)
    assert measurements.proposer("ngram").propose_s(3) == 0
