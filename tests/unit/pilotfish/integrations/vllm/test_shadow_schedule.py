"""When steps ask that do not wait."""

from __future__ import annotations

from pilotfish.integrations.vllm.shadow_schedule import ShadowSchedule


def num_due(schedule: ShadowSchedule, num_rows: int, num_steps: int = 64) -> int:
    return sum(schedule.is_due(num_rows) for _ in range(num_steps))


def test_about_a_row_is_asked_for_per_step() -> None:
    assert num_due(ShadowSchedule(), 8) == 8
    assert num_due(ShadowSchedule(), 1) == 32


def test_the_more_are_vain_the_rarer_they_are_down_to_a_bound_until_a_burst() -> None:
    schedule = ShadowSchedule()
    for expected in (32, 16, 8, 8):
        assert num_due(schedule, 1) == expected
        for _ in range(32):
            schedule.add(0)
    schedule.add(8)
    assert num_due(schedule, 1) == 32


def test_chance_hits_do_not_bring_shadows_back() -> None:
    schedule = ShadowSchedule()
    for at in range(160):
        schedule.add(at % 16 == 0)
    assert num_due(schedule, 1) < 32


def test_however_many_rows_there_are_shadows_stay_near_one_another() -> None:
    schedule = ShadowSchedule()
    for _ in range(64):
        schedule.add(0)
    assert num_due(schedule, 256) == 2
