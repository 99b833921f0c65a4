"""Does speculation earn its keep in a category, and with which draft length?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from pilotfish.bench.arms import Variant
from pilotfish.bench.metrics import ALL, MIN_TIMED_TOKENS, Row

NOISE = 0.05
"""Ratios this near to 1 are within what a busy machine varies by."""

Conclusion = Literal[
    "pays", "no difference", "does not pay", "costs accuracy", "unclear", "too noisy", "too short", "differs"
]


class ArmVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do in one category, or what to think of one arm over all."""

    category: str
    conclusion: Conclusion
    arm: str
    """The fastest arm of a category; where no answer has a speed, the first."""
    proposer: str
    """The proposer to use; empty: leave speculation off."""
    num_speculative_tokens: int | None
    """The draft length to use; None: leave it to the controller, or off."""
    speed_up: float | None
    sentence: str


def verdicts_of(rows: Sequence[Row], variants: Mapping[str, Variant], *, must_be_identical: bool) -> list[ArmVerdict]:
    """One for each category, then one over all.

    variants: what each of our own arms is, by its name. must_be_identical: every output must equal plain
    decoding's, so one that does not decides the verdict (not where sampling or near ties may differ). Draft
    lengths are chosen among the arms with a fixed one; where only `auto` was run, among those. Lossy arms are not
    chosen: whether their speed is worth its price is for people.
    """
    categories = dict.fromkeys(row.category for row in rows)
    speculative = {name: each for name, each in variants.items() if not each.is_plain and not each.lossy_by}
    verdicts = []
    for category in categories:
        own = [row for row in rows if row.category == category and row.arm in speculative]
        fixed = [row for row in own if speculative[row.arm].num_speculative_tokens is not None]
        if own:
            best = max(fixed or own, key=_believable)
            differing = [row for row in own if must_be_identical and not row.is_identical]
            verdicts.append(_judge(best, speculative[best.arm], differing))
    return verdicts


def arm_verdicts_of(
    rows: Sequence[Row], variants: Mapping[str, Variant], *, must_be_identical: bool
) -> list[ArmVerdict]:
    """One for each arm that drafts, the lossy ones included, over all categories. See verdicts_of."""
    *_, last = dict.fromkeys(row.category for row in rows)
    verdicts = []
    for row in rows:
        variant = variants.get(row.arm)
        if row.category == last and variant is not None and not variant.is_plain:
            differs = must_be_identical and not variant.lossy_by and not row.is_identical
            verdicts.append(_judge(row, variant, [row] if differs else []))
    return verdicts


def _judge(best: Row, variant: Variant, differing: Sequence[Row]) -> ArmVerdict:
    conclusion = _conclusion(best, differing)
    use = conclusion in ("pays", "unclear")
    return ArmVerdict(
        category=best.category,
        conclusion=conclusion,
        arm=best.arm,
        proposer=variant.proposer if use else "",
        num_speculative_tokens=variant.num_speculative_tokens if use else None,
        speed_up=best.speed_up,
        sentence=_sentence(best, conclusion, differing),
    )


def _believable(row: Row) -> float:
    """The speed-up, as far as it can come from speculation; 0 where there is none."""
    speed_up = row.speed_up or 0.0
    return speed_up if row.speed_up_bound is None else min(speed_up, row.speed_up_bound)


def _conclusion(best: Row, differing: Sequence[Row]) -> Conclusion:
    if differing:
        return "differs"
    if best.accuracy is not None and best.accuracy.is_lower:
        return "costs accuracy"
    if best.speed_up is None:
        return "too short"
    if best.speed_up > _believable(best) * (1 + NOISE):
        return "too noisy"
    ratios = (best.speed_up, best.speed_up_median if best.speed_up_median is not None else best.speed_up)
    if all(ratio > 1 + NOISE for ratio in ratios):
        return "pays"
    if all(ratio < 1 - NOISE for ratio in ratios):
        return "does not pay"
    # Sums follow the long answers, the median the typical one: where they contradict each other, neither decides.
    return "unclear" if max(ratios) > 1 + NOISE and min(ratios) < 1 else "no difference"


def _sentence(best: Row, conclusion: Conclusion, differing: Sequence[Row]) -> str:
    where = "Over all categories" if best.category == ALL else best.category
    figure = f"{best.speed_up or 0.0:.2f}x with {best.arm}"
    if conclusion == "differs":
        names = ", ".join(row.arm for row in differing)
        return f"{where}: the output of {names} differs from plain decoding's; no speed excuses that"
    median = f"{best.speed_up_median or 0.0:.2f}x in the median"
    accuracy = best.accuracy
    right = (
        "" if accuracy is None else f"{accuracy.right:.0%} right, {accuracy.right - accuracy.difference:.0%} plainly"
    )
    bound = f"{best.speed_up_bound or 0.0:.2f} tokens a step"
    return {
        "pays": f"{where}: speculation earns its keep, {figure}",
        "no difference": f"{where}: speculation makes no difference, {figure} at best",
        "does not pay": f"{where}: speculation does not pay, {figure} at best; leave it off",
        "costs accuracy": f"{where}: speculation costs accuracy, {figure}, but {right}",
        "too short": f"{where}: too short to tell, no answer of {MIN_TIMED_TOKENS} tokens or more; use others",
        "too noisy": f"{where}: too noisy to tell, {figure} by the clock but {bound}; use a quieter machine",
        "unclear": f"{where}: unclear, {figure} in sum but {median}; use more prompts",
    }[conclusion]
