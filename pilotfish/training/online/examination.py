"""Whether a candidate may serve: how long drafts are accepted, text by text, beside the version that serves.

A text's length is what a round of greedy decoding with a chain would bring, given the true tokens before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from pilotfish.learning.facts import Score

MIN_TEXTS = 8
"""Kinds with fewer texts count together."""
OTHER = "other"
"""Such kinds."""
MAX_LOSS = 0.02
"""Share of its length that a kind may lose: less is not told from chance."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A text's length with the version that serves, and with another."""

    kind: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an examination came to."""

    is_better: bool
    reason: str
    score: Score | None
    """Of the kinds that were learned from; None: too few texts."""
    kinds: Mapping[str, Score]


def examine(pairs: Sequence[Pair], learned: Collection[str]) -> Verdict:
    """Better on the kinds that were learned from, by more than the error; worse on none, by MAX_LOSS."""
    by_kind: dict[str, list[Pair]] = defaultdict(list)
    counts = Counter(pair.kind for pair in pairs)
    for pair in pairs:
        by_kind[pair.kind if counts[pair.kind] >= MIN_TEXTS else OTHER].append(pair)
    kinds = {kind: compare(each) for kind, each in sorted(by_kind.items()) if len(each) >= MIN_TEXTS}
    counted = [pair for kind in kinds for pair in by_kind[kind] if pair.kind in learned]
    if len(counted) < MIN_TEXTS:
        return Verdict(False, f"fewer than {MIN_TEXTS} texts of what it learned from to judge by", None, kinds)
    score = compare(counted)
    lost, share = min(((kind, each.after / each.before - 1) for kind, each in kinds.items()), key=lambda item: item[1])
    if share <= -MAX_LOSS:
        return Verdict(False, f"worse by {-share:.1%} on kind {lost}", score, kinds)
    if is_worse_or_unsure(score):
        return Verdict(False, f"not better by more than the error: {told(score)}", score, kinds)
    return Verdict(True, told(score), score, kinds)


def compare(pairs: Sequence[Pair]) -> Score:
    """Of at least two texts."""
    differences = [pair.after - pair.before for pair in pairs]
    return Score(
        num_texts=len(pairs),
        before=fmean(pair.before for pair in pairs),
        after=fmean(pair.after for pair in pairs),
        error=2 * stdev(differences) / sqrt(len(differences)),
    )


def is_worse_or_unsure(score: Score) -> bool:
    """Whether the gain is within the error."""
    return score.after - score.before <= score.error


def told(score: Score) -> str:
    """In words."""
    gain = score.after - score.before
    return (
        f"{score.before:.2f} to {score.after:.2f} tokens a round ({gain:+.2f} +- {score.error:.2f}) on "
        f"{score.num_texts} texts"
    )
