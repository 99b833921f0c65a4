"""What an orchestrator knows of all replicas together."""

from __future__ import annotations

import pytest

from orchestrator.control.measurements import Measurements


def test_who_asked_before_any_answer_does_not_hide_what_is_measured_later() -> None:
    measurements = Measurements()
    assert measurements.decode_s is None
    assert not measurements.replicas
    measurements.replica("a").costs.add_step(1, 1, 0.01)
    assert measurements.decode_s == pytest.approx(0.01)


def test_a_new_request_goes_most_likely_where_the_fewest_decode() -> None:
    measurements = Measurements()
    for _ in range(2):
        measurements.replica("busy").join()
    measurements.replica("idle").join()
    assert measurements.idlest is measurements.replica("idle")


def test_a_replica_that_is_gone_does_not_pass_for_idle() -> None:
    measurements = Measurements()
    measurements.replica("gone")
    for _ in range(2):
        measurements.replica("here").join()
    measurements.retain({"here", "new"})
    assert list(measurements.replicas) == ["here"]
    assert measurements.idlest is measurements.replica("here")
