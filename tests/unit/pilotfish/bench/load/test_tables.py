"""The report on a terminal."""

import io

import pytest
from rich.console import Console

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.result import LoadResult, points_of
from pilotfish.bench.load.slo import Slo
from pilotfish.bench.load.tables import show
from pilotfish.bench.machine import Machine


@pytest.fixture
def lines(make_record) -> list[str]:
    def window() -> Window:
        # 2,000 tokens in four seconds.
        records = [make_record([(1.0, 400), (4.0, 1600)]), make_record([], error_code="UNAVAILABLE")]
        return Window(records=records, start_s=0.0, end_s=4.0)

    level = Level("rate", 0.5)
    windows = {(level, "off"): [window()], (level, "auto"): [window()]}
    result = LoadResult(
        date="2026-01-01",
        machine=Machine(processor="p", cores=2, memory_gib=1.0, python="3", packages={}),
        conditions={"model": "m"},
        slo=Slo(ttft=500),
        baseline="off",
        points=points_of(windows, Slo(ttft=500), "off", with_texts=True),
    )
    output = io.StringIO()
    show(result, Console(file=output, width=80))
    return output.getvalue().splitlines()


def test_eighty_columns_hold_every_figure(lines: list[str]) -> None:
    rates = next(line for line in lines if line.startswith("0.5 req/s off"))
    assert rates.split() == ["0.5", "req/s", "off", "0.5", "0.25", "0", "500", "-", "1.2", "75%", "2.50", "1/2"]
    times = [line for line in lines if line.startswith("0.5 req/s off")][1]
    assert times.split()[3:] == ["1000", "1000", "3000.0", "3000.0", "1.5", "1.5", "4000", "4000"]
    assert not any("…" in line for line in lines)


def test_a_load_is_named_once_and_modes_are_held_against_the_baseline(lines: list[str]) -> None:
    auto = next(line for line in lines if line.split()[:1] == ["auto"])
    assert "1.00x" in auto


def test_objectives_and_failures_are_told(lines: list[str]) -> None:
    assert "good enough: ttft at most 500 ms" in lines
    assert any(line.startswith("auto, 0.5 req/s: 1 failed with UNAVAILABLE") for line in lines)
