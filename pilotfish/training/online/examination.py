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


def examine(pairs: Sequence[Pair], learned: Collection[str], beside_configured: Sequence[Pair] = ()) -> Verdict:
    """Better on the kinds that were learned from, by more than the error; worse on none, by MAX_LOSS.

    beside_configured: lengths of the configured head, and of the candidate. It must not be worse than that either, or
    many small losses would add up.
    """
    by_kind = _by_kind(pairs)
    kinds = {kind: compare(each) for kind, each in sorted(by_kind.items())}
    counted = [pair for pair in pairs if pair.kind in learned]
    if len(counted) < MIN_TEXTS:
        return Verdict(False, f"fewer than {MIN_TEXTS} texts of what it learned from to judge by", None, kinds)
    score = compare(counted)
    configured = {kind: compare(each) for kind, each in _by_kind(beside_configured).items()}
    for name, scores in (("", kinds), (" than the configured head", configured)):
        for kind, each in scores.items():
            if each.after <= (1 - MAX_LOSS) * each.before:
                loss = f"worse by {1 - each.after / each.before:.1%}{name} on kind {kind}"
                return Verdict(False, loss, score, kinds)
    if is_worse_or_unsure(score):
        return Verdict(False, f"not better by more than the error: {told(score)}", score, kinds)
    return Verdict(True, told(score), score, kinds)


def _by_kind(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Of kinds with enough texts; the others together, if those are enough."""
    counts = Counter(pair.kind for pair in pairs)
    found: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[pair.kind if counts[pair.kind] >= MIN_TEXTS else OTHER].append(pair)
    return {kind: each for kind, each in found.items() if len(each) >= MIN_TEXTS}


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
