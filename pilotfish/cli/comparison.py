"""Plain against speculative, in figures and in words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from pilotfish.bench.verdicts import NOISE
from pilotfish.client.answer import Summary


@dataclass(frozen=True)
class Comparison:
    """One prompt answered greedily both ways, several times in turns, so that both meet the same conditions."""

    name: str
    plain: tuple[Summary, ...]
    speculative: tuple[Summary, ...]
    identical: bool

    @property
    def speed_up(self) -> float:
        """Median tokens per second with speculation over those without; 0 when neither can be told."""
        plain = tokens_per_s(self.plain)
        return tokens_per_s(self.speculative) / plain if plain else 0.0


def tokens_per_s(summaries: Sequence[Summary]) -> float:
    """The median."""
    return statistics.median(summary.tokens_per_s for summary in summaries)


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """One row for each prompt and way; speeds are medians."""
    table = Table("prompt", "", "tok/s", "ratio", "TTFT", "acc. length", "accepted", "same text", box=SIMPLE_HEAD)
    for comparison in comparisons:
        table.add_row(comparison.name, "plain", _speed(comparison.plain), "1.00x", _ttft(comparison.plain))
        last = comparison.speculative[-1].speculation
        table.add_row(
            "",
            "drafts",
            _speed(comparison.speculative),
            f"{comparison.speed_up:.2f}x",
            _ttft(comparison.speculative),
            f"{last.mean_acceptance_length:.2f}" if last.num_rounds else "-",
            f"{last.acceptance_rate:.0%} of {last.num_draft_tokens}",
            "[green]yes[/]" if comparison.identical else "[red]NO[/]",
        )
    return table


def _speed(summaries: Sequence[Summary]) -> str:
    return f"{tokens_per_s(summaries):.1f}"


def _ttft(summaries: Sequence[Summary]) -> str:
    """The prompt is in the prefix cache in every run."""
    return f"{statistics.median(summary.time_to_first_token_s for summary in summaries) * 1e3:.0f} ms"


def verdict(comparison: Comparison) -> str:
    """What the figures say, plainly."""
    last = comparison.speculative[-1]
    emulated = " (emulated hardware: the figures say nothing about a real one)" if last.emulated else ""
    if not comparison.identical:
        return f"[red]{comparison.name}: the texts differ, which must not happen in deterministic mode[/]{emulated}"
    if not last.speculation.num_rounds:
        why = last.speculation.reason or "the drafter had nothing to propose"
        return f"{comparison.name}: no speculation took place ({why}){emulated}"
    if abs(comparison.speed_up - 1) < NOISE:
        pays = "makes no difference here"
    else:
        pays = "pays" if comparison.speed_up > 1 else "does not pay here"
    return f"{comparison.name}: speculation {pays}, {comparison.speed_up:.2f}x{emulated}"
