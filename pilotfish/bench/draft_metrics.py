"""How often the drafter was right, over many answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotfish.bench.measurement import Measurement
from pilotfish.speculation.statistics import SpeculationStats


class DraftMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over answers and their ratios; None where there is nothing to divide by."""

    acceptance_rate: float | None
    """Accepted over drafted tokens."""
    mean_acceptance_length: float | None
    """1 + accepted tokens over speculative rounds."""
    tokens_per_step: float | None
    """Output tokens over steps of the target (speculative rounds and plain steps): free of any clock."""
    num_draft_tokens: int
    num_accepted_tokens: int
    num_wasted_tokens: int
    """Drafted, not accepted."""
    num_missed_deadlines: int
    acceptance_per_position: tuple[float, ...]
    """Weighted by each answer's rounds."""


def draft_metrics(answers: Sequence[Measurement]) -> DraftMetrics | None:
    """None when one of the answers does not tell."""
    counts = [each.summary.speculation for each in answers if each.summary is not None]
    if len(counts) < len(answers):
        return None
    num_rounds = sum(each.num_rounds for each in counts)
    num_drafted = sum(each.num_draft_tokens for each in counts)
    num_accepted = sum(each.num_accepted_tokens for each in counts)
    num_steps = num_rounds + sum(each.num_plain_tokens for each in counts)
    return DraftMetrics(
        acceptance_rate=num_accepted / num_drafted if num_drafted else None,
        mean_acceptance_length=1 + num_accepted / num_rounds if num_rounds else None,
        tokens_per_step=sum(each.num_tokens for each in answers) / num_steps if num_steps else None,
        num_draft_tokens=num_drafted,
        num_accepted_tokens=num_accepted,
        num_wasted_tokens=num_drafted - num_accepted,
        num_missed_deadlines=sum(each.num_missed_deadlines for each in counts),
        acceptance_per_position=_per_position(counts),
    )


def _per_position(counts: Sequence[SpeculationStats]) -> tuple[float, ...]:
    length = max((len(each.acceptance_per_position) for each in counts), default=0)
    totals, weights = [0.0] * length, [0] * length
    for each in counts:
        for position, rate in enumerate(each.acceptance_per_position):
            totals[position] += rate * each.num_rounds
            weights[position] += each.num_rounds
    return tuple(total / weight for total, weight in zip(totals, weights, strict=True) if weight)
