"""Figures of a comparison and what is said about them."""

import dataclasses
import io

from rich.console import Console

from pilotfish.cli.comparison import Comparison, comparison_table, verdict
from pilotfish.client.answer import Summary
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
SLOW = dataclasses.replace(FAST, total_time_s=21.0)


def compared(*pool: Summary, target: tuple[Summary, ...] = (SLOW,), identical: bool = True) -> Comparison:
    return Comparison("p", (PLAIN,), {"pool": pool, "target": target}, identical)


def test_speeds_are_medians() -> None:
    assert compared(SLOW, FAST, FAST).speed_up("pool") == 2.0


def test_the_verdict_names_the_best_way_over_all_prompts() -> None:
    assert "Take drafts from the pool: 2.00x" in verdict([compared(FAST), compared(FAST, target=(FAST,))])
    assert "Take drafts from the target: 1.41x" in verdict(
        [compared(SLOW, target=(FAST,)), compared(SLOW, target=(PLAIN,))]
    )
    assert "Drafts do not pay here (best from the pool, 0.50x" in verdict([compared(SLOW)])
    assert "texts differ" in verdict([compared(FAST), compared(FAST, identical=False)])
    assert "No speculation took place" in verdict([compared(PLAIN, target=(PLAIN,))])
    assert "there is no drafter" in verdict([Comparison("p", (PLAIN,), {}, identical=True)])


def test_the_table_says_whether_the_texts_are_the_same() -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(comparison_table([compared(FAST, identical=False)]))
    assert "NO" in console.file.getvalue()  # type: ignore[attr-defined]
