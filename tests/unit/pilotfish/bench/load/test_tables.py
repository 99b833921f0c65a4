"""The report on a terminal."""

import io

import pytest
from rich.console import Console

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.point import LoadResult, points_of
from pilotfish.bench.load.tables import show
from pilotfish.bench.machine import Machine


@pytest.fixture
def lines(make_record) -> list[str]:
    def window() -> Window:
        # 2,000 tokens in four seconds.
        records = [make_record([(1.0, 400), (4.0, 1600)]), make_record([], error_code="UNAVAILABLE")]
        return Window(records=records, start_s=0.0, end_s=4.0, cpu_share=0.95)

    windows = {(16, "off"): [window()], (16, "auto"): [window()]}
    result = LoadResult(
        date="2026-01-01",
        machine=Machine(processor="p", cores=2, memory_gib=1.0, python="3", packages={}),
        conditions={"model": "m"},
        baseline="off",
        points=points_of(windows, "off", with_texts=True),
    )
    output = io.StringIO()
    show(result, Console(file=output, width=80))
    return output.getvalue().splitlines()


def test_eighty_columns_hold_every_figure(lines: list[str]) -> None:
    rates, times = [line.split() for line in lines if line.split()[:2] == ["16", "off"]]
    assert rates[2:] == ["0.25", "500", "-", "75%", "2.50", "1/2"]
    assert times[2:] == ["1000", "1000", "3000.0", "3000.0", "1.5", "1.5", "4000", "4000"]
    assert not any("…" in line for line in lines)


def test_failures_and_a_client_that_was_too_slow_are_told(lines: list[str]) -> None:
    assert any(line.startswith("auto, 16 in flight: this program used 95% of a core") for line in lines)
    assert any(line.startswith("auto, 16 in flight: 1 failed with UNAVAILABLE") for line in lines)
