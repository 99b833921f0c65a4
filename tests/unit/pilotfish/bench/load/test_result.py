"""Modes held against each other."""

from __future__ import annotations

import json

import pytest

from pilotfish.bench.load.details import to_jsonl
from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.html import to_html
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.result import LoadResult, points_of, to_json
from pilotfish.bench.load.slo import Slo
from pilotfish.bench.load.tables import remarks
from pilotfish.bench.machine import Machine

ONE, FOUR = Level("concurrency", 1), Level("concurrency", 4)


@pytest.fixture
def windows(make_record) -> dict[tuple[Level, str], list[Window]]:
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
        slo=Slo(ttft=1500),
        baseline="off",
        points=points_of(windows, Slo(ttft=1500), "off", with_texts=True),
    )


def test_ratios_are_over_the_baseline_at_the_same_load(result: LoadResult) -> None:
    ratios = {
        (point.load, point.mode): (point.throughput_ratio, point.itl_ratio, point.e2e_ratio) for point in result.points
    }
    assert ratios == {
        ("1 in flight", "off"): (None, None, None),
        ("1 in flight", "auto"): (2.0, 0.5, 0.5),
        ("4 in flight", "off"): (None, None, None),
        ("4 in flight", "auto"): (0.5, 2.0, 2.0),
    }


def test_answers_to_the_same_request_are_held_against_each_other(result: LoadResult, windows) -> None:
    texts = {(point.load, point.mode): (point.num_compared, point.num_differing) for point in result.points}
    assert texts["1 in flight", "auto"] == (2, 1)
    assert texts["4 in flight", "auto"] == (1, 0)
    assert any("1 of 2 answers differ" in line for line in remarks(result))
    without = points_of(windows, None, "off", with_texts=False)
    assert {point.num_compared for point in without} == {0}


def test_without_the_baseline_there_are_no_ratios(windows) -> None:
    points = points_of({key: value for key, value in windows.items() if key[1] == "auto"}, None, "off", with_texts=True)
    assert {point.throughput_ratio for point in points} == {None}


def test_json_and_lines_hold_the_figures(result: LoadResult, windows) -> None:
    report = json.loads(to_json(result))
    assert report["points"][1]["ttft_ms"]["p50"] == 1000
    assert report["points"][1]["good_share"] == 1.0
    lines = [json.loads(line) for line in to_jsonl(windows).splitlines()]
    assert [(line["load"], line["mode"], line["turn"], line["index"]) for line in lines][:3] == [
        ("1 in flight", "off", 0, 0),
        ("1 in flight", "off", 1, 1),
        ("1 in flight", "auto", 0, 0),
    ]
    assert (lines[0]["ttft_ms"], lines[0]["e2e_ms"], lines[0]["itl_ms"]) == (2000, 4000, [2000])
    assert lines[0]["speculation"]["num_draft_tokens"] == 4


def test_the_page_holds_plots_and_every_figure_and_escapes_what_others_wrote(result: LoadResult) -> None:
    page = to_html(result)
    # Throughput, requests, goodput, the ratio, and three latencies.
    assert page.count("<svg") == 7
    assert "&lt;m&gt;" in page
    assert "&lt;why&gt;" in page
    assert "<why>" not in page
    assert "src=" not in page


def test_remarks_name_failures_and_reasons(make_record) -> None:
    failed = make_record([], error_code="UNAVAILABLE")
    failed.error = "gone"
    window = Window(records=[failed, make_record(reason="draft pool is gone")], start_s=0.0, end_s=2.0)
    machine = Machine(processor="p", cores=2, memory_gib=1.0, python="3", packages={})
    points = points_of({(ONE, "on"): [window]}, None, "on", with_texts=False)
    result = LoadResult(date="", machine=machine, conditions={}, slo=None, baseline="on", points=points)
    assert remarks(result) == [
        "on, 1 in flight: 1 failed with UNAVAILABLE: gone",
        "on, 1 in flight: speculation limited in 1 of 2: draft pool is gone",
    ]
