"""A client that is too slow says so."""

import pytest

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.health import client_health
from pilotfish.bench.load.level import Level


def test_a_quick_client_has_nothing_to_warn_of(make_record) -> None:
    window = Window(records=[make_record(lag_s=0.001)], cpu_share=0.5, loop_lags_s=[0.001] * 100)
    health = client_health([window], Level("rate", 1))
    assert health.warnings == []
    assert health.schedule_lag_ms is not None
    assert health.schedule_lag_ms.max == pytest.approx(1.0)


def test_each_sign_of_slowness_is_told(make_record) -> None:
    window = Window(records=[make_record(lag_s=0.02)], cpu_share=0.95, loop_lags_s=[0.03] * 10)
    warnings = client_health([Window(), window], Level("rate", 1)).warnings
    assert [("20 ms late" in text, "30 ms late" in text, "95%" in text) for text in warnings] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_the_closed_loop_has_no_schedule_to_be_late_for(make_record) -> None:
    assert client_health([Window(records=[make_record(lag_s=9)])], Level("concurrency", 1)).schedule_lag_ms is None
