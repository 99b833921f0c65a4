"""What the answers themselves say against a drafter: kinds of prompts, temperature, length. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from pilotfish.examine.acceptance import Acceptance, acceptance_of
from pilotfish.examine.drafted_answer import DraftedAnswer
from pilotfish.examine.result import Finding

MIN_POSITIONS = 60
"""Places whose share of right drafts says something."""
_DOMAIN, _TEMPERATURE, _CONTEXT = 0.35, 0.7, 0.5
"""Shares of the others' acceptance below which a kind of prompts, sampled answers and long texts stand out: by more
than they differ for sound drafters (the heads that come with Pilotfish: 0.5 to 0.7 for the worst kind of ten, and 0.85
to 0.9 at temperature 0.7). Beyond its context a drafter that cannot go on drafts nothing, or at random: half of its
acceptance is far from that, and from what a text's length costs by itself."""
_SHAPED = 0.35
"""Share of the other places' acceptance below which those stand out where penalties or a grammar have changed the
target's choice: a drafter that sees it finds such tokens harder, one that does not is right there by chance."""
_LEAST = 0.15
"""Share of first drafts that a drafter gets right which was trained for the target at all: one of another model agrees
on the most frequent tokens alone."""


def least_gain(num_positions: int) -> float:
    """The least growth of a share of so many places that is called a cause: 0.05, or two standard errors."""
    return max(0.05, 1 / math.sqrt(max(1, num_positions)))


def suspicions(answers: Sequence[DraftedAnswer], max_context_tokens: int) -> Iterator[Finding]:
    """What may be wrong with a drafter that was trained. max_context_tokens: the context that it was made for; 0:
    nobody knows."""
    if (too_long := _context(answers, max_context_tokens)) is not None:
        yield too_long  # other differences may come of it
        return
    if (unseen := _shaped(answers)) is not None:
        yield unseen
        return
    first = _first(acceptance_of(answers, 1))
    if first is not None and first < _LEAST:
        yield Finding(
            "the drafter hardly ever agrees with this target",
            f"{first:.0%} of its first drafts are accepted",
            "Take one that was trained for this very model, or train it (`pilotfish train`)",
        )
        return
    yield from _domains(answers)
    yield from _temperature(answers)


def _first(acceptance: Acceptance) -> float | None:
    """Share of first drafts that are accepted; None: there are too few to say."""
    return acceptance.rates[0] if acceptance.rates and acceptance.num_positions >= MIN_POSITIONS else None


def _parted(
    answers: Sequence[DraftedAnswer], is_in: Callable[[DraftedAnswer], bool]
) -> tuple[float | None, float | None]:
    """Acceptance of the first draft token in the answers for which is_in is true, and in the others."""
    parts = ([answer for answer in answers if is_in(answer) is wanted] for wanted in (True, False))
    inside, outside = (_first(acceptance_of(part, 1)) for part in parts)
    return inside, outside


def _domains(answers: Sequence[DraftedAnswer]) -> Iterator[Finding]:
    for category in dict.fromkeys(answer.category for answer in answers):
        own, others = _parted(answers, lambda answer, category=category: answer.category == category)  # type: ignore[misc]
        if own is not None and others is not None and own < _DOMAIN * others:
            yield Finding(
                f"the drafter does not know {category}",
                f"{own:.0%} of first drafts are accepted there, {others:.0%} elsewhere",
                "Train it on such prompts (`pilotfish train ... --prompts FILE --start-from`), or take a lookup there",
            )


def _temperature(answers: Sequence[DraftedAnswer]) -> Iterator[Finding]:
    sampled, greedy = _parted(answers, lambda answer: answer.temperature > 0)
    if sampled is not None and greedy is not None and sampled < _TEMPERATURE * greedy:
        temperature = max(answer.temperature for answer in answers)
        yield Finding(
            "the temperature is high for this drafter",
            f"{sampled:.0%} of first drafts are accepted at temperature {temperature:g}, {greedy:.0%} in greedy ones",
            "Lower temperature or top_p where the answers allow it, or draft fewer tokens for such requests",
        )


def _shaped(answers: Sequence[DraftedAnswer]) -> Finding | None:
    """Greedy answers, of which the target's own choices are known."""
    rights: Mapping[bool, list[bool]] = {True: [], False: []}
    for answer in answers:
        if answer.temperature == 0 and len(answer.shaped) == len(answer.token_ids):
            for place in range(1, len(answer.token_ids)):
                rights[answer.shaped[place]].append(answer.num_accepted(place) > 0)
    if min(map(len, rights.values())) < MIN_POSITIONS:
        return None
    changed, free = (sum(rights[part]) / len(rights[part]) for part in (True, False))
    share = len(rights[True]) / sum(map(len, rights.values()))
    if changed >= _SHAPED * free or share * (free - changed) < least_gain(len(rights[True])):
        return None
    return Finding(
        "sampling that drafts cannot see (penalties, grammar)",
        f"it changes the target's choice at {share:.0%} of the places; {changed:.0%} of first drafts are accepted "
        f"there, {free:.0%} elsewhere",
        "Take a head in the target, or a draft model of its vocabulary: they see both. Or leave penalties out "
        "(orchestrator.generation_config: none)",
    )


def _context(answers: Sequence[DraftedAnswer], max_context_tokens: int) -> Finding | None:
    if not max_context_tokens:
        return None
    rights: Mapping[bool, list[bool]] = {True: [], False: []}
    for answer in answers:
        for place in range(1, len(answer.token_ids)):
            is_beyond = answer.num_prompt_tokens + place > max_context_tokens
            rights[is_beyond].append(answer.num_accepted(place) > 0)
    if min(map(len, rights.values())) < MIN_POSITIONS:
        return None
    beyond, within = (sum(rights[part]) / len(rights[part]) for part in (True, False))
    if beyond >= _CONTEXT * within:
        return None
    return Finding(
        "texts are longer than the drafter's context",
        f"beyond {max_context_tokens} tokens {beyond:.0%} of first drafts are accepted, {within:.0%} before",
        "Use a drafter of a longer context, or a lookup for long prompts",
    )
