"""Figures of a comparison and what is said about them."""

import dataclasses
import io

from rich.console import Console

from pilotfish.cli.comparison import Comparison, comparison_table, verdict
from pilotfish.speculation.statistics import SpeculationStats
from tests.support.summaries import make_summary

PLAIN = make_summary(num_output_tokens=101, total_time_s=11.0, num_plain_tokens=101)
FAST = dataclasses.replace(
    PLAIN,
    total_time_s=6.0,
    speculation=SpeculationStats(
        num_rounds=50, num_draft_tokens=250, num_accepted_tokens=50, mean_acceptance_length=2.0
    ),
)
LEVEL = dataclasses.replace(FAST, total_time_s=10.9)
SLOW = dataclasses.replace(FAST, total_time_s=21.0)


def test_speeds_are_medians() -> None:
    assert Comparison("p", (PLAIN,), (SLOW, FAST, FAST), identical=True).speed_up == 2.0


def test_the_verdict_is_plain_about_each_case() -> None:
    assert "speculation pays, 2.00x" in verdict(Comparison("p", (PLAIN,), (FAST,), identical=True))
    assert "does not pay here, 0.50x" in verdict(Comparison("p", (PLAIN,), (SLOW,), identical=True))
    assert "makes no difference here, 1.01x" in verdict(Comparison("p", (PLAIN,), (LEVEL,), identical=True))
    assert "texts differ" in verdict(Comparison("p", (PLAIN,), (FAST,), identical=False))
    assert "no speculation took place" in verdict(Comparison("p", (PLAIN,), (PLAIN,), identical=True))


def test_the_table_says_whether_the_texts_are_the_same() -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(comparison_table([Comparison("p", (PLAIN,), (FAST,), identical=False)]))
    assert "NO" in console.file.getvalue()  # type: ignore[attr-defined]
