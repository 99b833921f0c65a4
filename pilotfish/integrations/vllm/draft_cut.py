"""How much of each row's draft is worth verifying: where verifying costs, what was vain last is mostly vain again.

A draft token of the batch adds as much time as any other, and yields as much as its chance to be accepted. The chance
follows from what became of the row's draft before: texts repeat themselves in stretches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Fate = Literal["unknown", "empty", "vain", "part", "whole"]
"""Of a row's last draft. whole: every token was right of which that is known."""

_FADING = 1 - 1 / 256
"""Of what is known of a fate, with every draft after it."""
_PRIOR_DRAFTS = 4.0
"""What drafts of all fates tell counts as much as so many of this one."""
_FIRST_CHANCE = 0.5
"""Before any draft."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A row's draft."""

    row_id: int
    num_tokens: int


class DraftCut:
    """Pure bookkeeping."""

    def __init__(self, max_tokens: int) -> None:
        """max_tokens: of a draft."""
        self._max_tokens = max_tokens
        self._all = _Chances(max_tokens)
        self._by_fate: dict[Fate, _Chances] = {}
        self._fates: dict[int, Fate] = {}

    def lengths(self, answers: Sequence[Answer], num_rows: int, token_cost: float) -> list[int]:
        """Tokens of each draft that are worth verifying in one step.

        num_rows: of the batch, which say at least a token each. token_cost: what each draft token adds to the step, of
        what it takes without any.
        """
        fates = [self._fate(answer.row_id) for answer in answers]
        chances = {fate: self._chances(fate) for fate in set(fates)}
        candidates = [
            (chance, -slot)
            for slot, (answer, fate) in enumerate(zip(answers, fates, strict=True))
            for chance in chances[fate][: answer.num_tokens]
        ]
        lengths = [0] * len(answers)
        expected_tokens, duration = float(num_rows), 1.0
        # Chances only fall along a draft: the best of all candidates are beginnings of drafts.
        for chance, negative_slot in sorted(candidates, reverse=True):
            if chance * duration <= token_cost * expected_tokens:
                break
            lengths[-negative_slot] += 1
            expected_tokens += chance
            duration += token_cost
        return lengths

    def learn(self, answer: Answer, num_known: int, num_right: int) -> None:
        """The first num_right tokens were those that vLLM committed; of num_known it can be told."""
        before = self._fate(answer.row_id)
        for chances in (self._all, self._by_fate.setdefault(before, _Chances(self._max_tokens))):
            chances.add(num_known, num_right)
        self._fates[answer.row_id] = _fate_of(answer.num_tokens, num_known, num_right)

    def keep(self, row_ids: Sequence[int]) -> None:
        """Forget all other rows."""
        self._fates = {row_id: self._fates[row_id] for row_id in row_ids if row_id in self._fates}

    def _fate(self, row_id: int) -> Fate:
        return self._fates.get(row_id, "unknown")

    def _chances(self, fate: Fate) -> list[float]:
        """Of each token of the longest draft, that it is accepted with all before it."""
        known = self._by_fate.get(fate)
        chance, chances = 1.0, []
        for position in range(self._max_tokens):
            general = self._all.chance(position, _FIRST_CHANCE)
            chance *= general if known is None else known.chance(position, general)
            chances.append(chance)
        return chances


def _fate_of(num_tokens: int, num_known: int, num_right: int) -> Fate:
    if num_tokens == 0:
        return "empty"
    if num_right == 0:
        return "vain"
    return "whole" if num_right == num_known else "part"


class _Chances:
    """How often the token at each position is right where those before it are."""

    def __init__(self, max_tokens: int) -> None:
        self._reached = [0.0] * max_tokens
        self._right = [0.0] * max_tokens

    def add(self, num_known: int, num_right: int) -> None:
        for position in range(min(num_known, num_right + 1)):
            self._reached[position] = self._reached[position] * _FADING + 1
            self._right[position] = self._right[position] * _FADING + (position < num_right)

    def chance(self, position: int, prior: float) -> float:
        """prior: what is believed before any draft."""
        return (self._right[position] + _PRIOR_DRAFTS * prior) / (self._reached[position] + _PRIOR_DRAFTS)
