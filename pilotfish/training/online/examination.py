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
"""The fewest texts by which a kind is judged."""
OTHER = "other"
"""Kind under which those with fewer than MIN_TEXTS texts count together."""
MAX_LOSS = 0.02
"""Share of its length that a kind may lose; more, where that is within its error."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A text's length with the version that serves, and with another."""

    kind: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class ExaminationResult:
    """What an examination came to."""

    is_better: bool
    reason: str
    score: Score | None
    """Score over the kinds that were learned from; None: too few texts."""
    kinds: Mapping[str, Score]


def examine(
    pairs: Sequence[Pair], learned: Collection[str], beside_configured: Sequence[Pair] = ()
) -> ExaminationResult:
    """Better on the kinds that were learned from, by more than the error; worse on none, by MAX_LOSS and by more than
    the error: of many kinds with few texts, one seems worse by chance.

    beside_configured: lengths of the configured head, and of the candidate. It must not be worse than that either, or
    many small losses would add up.
    """
    by_kind = _by_kind(pairs)
    kinds = {kind: compare(each) for kind, each in sorted(by_kind.items())}
    counted = [pair for pair in pairs if pair.kind in learned]
    if len(counted) < MIN_TEXTS:
        return ExaminationResult(
            False, f"fewer than {MIN_TEXTS} texts of what it learned from to judge by", None, kinds
        )
    score = compare(counted)
    configured = {kind: compare(each) for kind, each in _by_kind(beside_configured).items()}
    for name, scores in (("", kinds), (" than the configured head", configured)):
        for kind, each in scores.items():
            if each.before - each.after >= max(MAX_LOSS * each.before, each.error):
                loss = f"worse by {1 - each.after / each.before:.1%}{name} on kind {kind}"
                return ExaminationResult(False, loss, score, kinds)
    if is_worse_or_unsure(score):
        return ExaminationResult(False, f"not better by more than the error: {in_words(score)}", score, kinds)
    return ExaminationResult(True, in_words(score), score, kinds)


def _by_kind(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Pairs of each kind with enough texts; the others together, if those are enough."""
    counts = Counter(pair.kind for pair in pairs)
    found: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[pair.kind if counts[pair.kind] >= MIN_TEXTS else OTHER].append(pair)
    return {kind: each for kind, each in found.items() if len(each) >= MIN_TEXTS}


def compare(pairs: Sequence[Pair]) -> Score:
    """Score of the pairs, at least two."""
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


def in_words(score: Score) -> str:
    """The score in words."""
    gain = score.after - score.before
    return (
        f"{score.before:.2f} to {score.after:.2f} tokens a round ({gain:+.2f} +- {score.error:.2f}) on "
        f"{score.num_texts} texts"
    )
