"""Plain decoding against ways of drafting, in figures and in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from pilotfish.bench.verdicts import NOISE
from pilotfish.client.answer import Summary


@dataclass(frozen=True)
class Comparison:
    """One prompt answered greedily in several ways, in turns, so that all meet the same conditions."""

    name: str
    plain: Sequence[Summary]
    drafts: Mapping[str, Sequence[Summary]]
    """By the way of drafting."""
    identical: bool
    """All texts are the same."""

    def speed_up(self, way: str) -> float:
        """Median tokens per second over plain decoding's; 0 when neither can be told."""
        plain = tokens_per_s(self.plain)
        return tokens_per_s(self.drafts[way]) / plain if plain else 0.0


def tokens_per_s(summaries: Sequence[Summary]) -> float:
    """The median."""
    return statistics.median(summary.tokens_per_s for summary in summaries)


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """One row for each prompt and way; speeds are medians."""
    table = Table("prompt", "drafts from", "tok/s", "ratio", "TTFT", "tokens a round", "same text", box=SIMPLE_HEAD)
    for comparison in comparisons:
        table.add_row(comparison.name, "(plain)", _speed(comparison.plain), "1.00x", _ttft(comparison.plain))
        same = "[green]yes[/]" if comparison.identical else "[red]NO[/]"
        for way, summaries in comparison.drafts.items():
            last = summaries[-1].speculation
            length = f"{last.mean_acceptance_length:.2f}" if last.num_rounds else "no drafts"
            ratio = f"{comparison.speed_up(way):.2f}x"
            table.add_row("", way, _speed(summaries), ratio, _ttft(summaries), length, same)
    return table


def _speed(summaries: Sequence[Summary]) -> str:
    return f"{tokens_per_s(summaries):.1f}"


def _ttft(summaries: Sequence[Summary]) -> str:
    """The prompt is in the prefix cache in every run."""
    return f"{statistics.median(summary.time_to_first_token_s for summary in summaries) * 1e3:.0f} ms"


def verdict(comparisons: Sequence[Comparison]) -> str:
    """What to take from the figures: the way that is fastest on the mean of the prompts, if one pays."""
    if not all(comparison.identical for comparison in comparisons):
        return "[red]The texts differ, which must not happen in deterministic mode.[/]"
    ways = [way for way in comparisons[0].drafts if any(_has_drafts(each, way) for each in comparisons)]
    if not ways:
        reason = next(iter(comparisons[0].drafts.values()))[-1].speculation.reason if comparisons[0].drafts else ""
        return f"No speculation took place: {reason or 'there is no drafter'}."
    means = {way: statistics.geometric_mean(max(each.speed_up(way), 1e-9) for each in comparisons) for way in ways}
    best = max(means, key=means.__getitem__)
    gain = f"{means[best]:.2f}x on the mean, the same text"
    if any(each.plain[-1].emulated for each in comparisons):
        gain += " (emulated)"
    if means[best] < 1 + NOISE:
        return f"Drafts do not pay here (best from the {best}, {gain}); mode auto, the default, then leaves them off."
    return f"Take drafts from the {best}: {gain}. Mode auto, the default, drafts only while that pays."


def _has_drafts(comparison: Comparison, way: str) -> bool:
    return any(summary.speculation.num_rounds for summary in comparison.drafts[way])
