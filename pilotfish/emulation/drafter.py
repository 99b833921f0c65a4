"""What an emulated drafter thinks of: the right token as often as is asked for, and its next best guesses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.speculation.lookup.index import one_hot_probs
from pilotfish.speculation.results import DraftToken
from pilotfish.speculation.trees.fan_out import MAX_RIVALS
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import SamplingParams

Acceptance = float | Sequence[float]
"""Probability that a draft token is the target's if all before it are; by position, the last for further ones."""

RIVAL_ACCEPTANCE = 0.5
"""Probability that the target's token is the drafter's next best where the best one was wrong, and so on."""


class EmulatedDrafter:
    """A drafter of HashLanguageModel's text. Pure."""

    def __init__(self, language_model: HashLanguageModel, acceptance: Acceptance) -> None:
        self.language_model = language_model
        self._acceptance = (acceptance,) if isinstance(acceptance, int | float) else tuple(acceptance)

    def guess(self, sequence: EngineSequence, path: Sequence[int], num_drafts: int) -> Guess:
        """What comes after the sequence's tokens and a path, whose last num_drafts tokens are drafts."""
        end = [*sequence.tokens[-self.language_model.order :], *path]
        acceptance = self._acceptance[min(num_drafts, len(self._acceptance) - 1)]
        return Guess(self.language_model, end, len(sequence.tokens) + len(path), sequence.sampling, acceptance)


@dataclass(slots=True, eq=False)
class Guess(Sequence[Candidate]):
    """A drafter's own pick and its next best ones, thought of when somebody looks at them: few ever are, and they take
    time to make up."""

    model: HashLanguageModel
    end: Sequence[int]
    """The text's end, as far as it matters."""
    length: int
    """Length of the text."""
    sampling: SamplingParams
    acceptance: float
    _candidates: list[Candidate] | None = None

    @property
    def draft(self) -> DraftToken:
        """The drafter's pick."""
        token_id = self.model.draft_token(self.end, self.sampling, self.acceptance, self.length)
        return DraftToken(token_id, next(iter(one_hot_probs((token_id,), self.sampling)), None))

    def __len__(self) -> int:
        return len(self._think())

    def __getitem__(self, index: Any) -> Any:
        return self._think()[index]

    def _think(self) -> list[Candidate]:
        if self._candidates is None:
            first = self.model.draft_token(self.end, self.sampling, self.acceptance, self.length)
            truth = self.model.next_token(self.end, self.sampling, self.length)
            others = self.model.wrong_tokens(truth, first, MAX_RIVALS)
            if first != truth:
                rank = self.model.rank(self.end, self.sampling, RIVAL_ACCEPTANCE, self.length)
                if rank < len(others):
                    others[rank] = truth
            wrong = 1 - self.acceptance
            shares = [RIVAL_ACCEPTANCE * (1 - RIVAL_ACCEPTANCE) ** rank for rank in range(len(others))]
            ranked = zip((first, *others), (self.acceptance, *(wrong * share for share in shares)), strict=True)
            self._candidates = [Candidate(token_id, math.log(max(prob, 1e-9))) for token_id, prob in ranked]
        return self._candidates
