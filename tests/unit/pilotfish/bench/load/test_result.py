"""Modes held against each other."""

from __future__ import annotations

import pytest

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.point import LoadResult, points_of
from pilotfish.bench.load.tables import remarks
from pilotfish.bench.machine import Machine

ONE, FOUR = 1, 4


@pytest.fixture
def windows(make_record) -> dict[tuple[int, str], list[Window]]:
    def window(duration_s: float, index: int, first_token_id: int = 7) -> Window:
        record = make_record(
            [(duration_s / 2, 1), (duration_s, 1)], index=index, first_token_id=first_token_id, reason="<why>"
        )
        return Window(records=[record], start_s=0.0, end_s=duration_s)

    return {
        (ONE, "off"): [window(4.0, 0), window(4.0, 1)],
        (ONE, "auto"): [window(2.0, 0), window(2.0, 1, first_token_id=8)],
        (FOUR, "off"): [window(2.0, 0)],
        (FOUR, "auto"): [window(4.0, 0)],
    }


@pytest.fixture
def result(windows) -> LoadResult:
    machine = Machine(processor="p", cores=2, memory_gib=1.0, python="3", packages={})
    return LoadResult(
        date="2026-01-01",
        machine=machine,
        conditions={"model": "<m>"},
        baseline="off",
        points=points_of(windows, "off", with_texts=True),
    )


def test_ratios_are_over_the_baseline_at_the_same_load(result: LoadResult) -> None:
    ratios = {(point.concurrency, point.mode): point.throughput_ratio for point in result.points}
    assert ratios == {
        (1, "off"): None,
        (1, "auto"): 2.0,
        (4, "off"): None,
        (4, "auto"): 0.5,
    }


def test_answers_to_the_same_request_are_held_against_each_other(result: LoadResult, windows) -> None:
    texts = {(point.concurrency, point.mode): (point.num_compared, point.num_differing) for point in result.points}
    assert texts[1, "auto"] == (2, 1)
    assert texts[4, "auto"] == (1, 0)
    assert any("1 of 2 answers differ" in line for line in remarks(result))
    without = points_of(windows, "off", with_texts=False)
    assert {point.num_compared for point in without} == {0}
