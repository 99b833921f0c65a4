"""Runs arms over prompts, in turn, so that a slow spell of a shared machine meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pilotfish.bench.grading import is_right
from pilotfish.bench.measurement import Arm, Measurement
from pilotfish.bench.prompts import Prompt

WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class TokenisedPrompt:
    """A prompt with the tokens that every arm gets."""

    prompt: Prompt
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    arm: str
    category: str
    prompt_index: int
    turn: int
    """Answers of one turn to one prompt were measured next to each other: they are what is compared."""
    measurement: Measurement
    is_right: bool | None = None
    """None: the prompt has no reference that tells, or the contestant no text."""


def run_arms(
    arms: Sequence[Arm],
    prompts: Sequence[TokenisedPrompt],
    *,
    max_tokens: int,
    turns: Sequence[int] = (0,),
    on_answer: Callable[[], None],
) -> list[Sample]:
    """Every arm answers every prompt once in each of `turns`; on_answer after each. Raises PilotfishError.

    The arms take turns prompt by prompt, and each comes first equally often. What is built on first use is paid for
    before, by a short answer of each arm that does not count.
    """
    for arm in arms:
        arm.answer(prompts[0].token_ids, max_tokens=WARM_UP_TOKENS)
    samples = []
    for index, prompt in enumerate(prompts):
        # Into the prefix cache, if there is one: for all arms alike.
        arms[0].answer(prompt.token_ids, max_tokens=1)
        for count, turn in enumerate(turns):
            first = (index * len(turns) + count) % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                measurement = arm.answer(prompt.token_ids, max_tokens=max_tokens)
                graded = None if measurement.text is None else is_right(measurement.text, prompt.prompt.references)
                samples.append(Sample(arm.name, prompt.prompt.category, index, turn, measurement, graded))
                on_answer()
    return samples
