"""How the model splits forced text into tokens, where it does not as its tokenizer would.

A model that means another text than the one it must write often comes to it by another token: `{` in place of `{"`.
What it wrote in the place of a token is counted, and is drafted the next time. A place's counts stand over those of its
token at all places, and those over the tokenizer's word. No text is kept, and requests of another `cache_salt` have
other places.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

Place: TypeAlias = tuple[int, int, int]
"""Hashes of the requests' `cache_salt` and of the text around, and the tokenizer's token."""

_ANYWHERE = 0
"""Stands for the hash of any text."""
_PRIOR, _PRIOR_WEIGHT = 0.99, 8.0
"""Belief that the tokenizer's token is right, in places."""
_GENERAL_WEIGHT = 2.0
"""Times that a token's counts at all places are worth for one of them."""
_DECAY = 0.9
"""Factor on a place's counts with each new one."""
_MAX_PLACES = 16_384
"""Some 4 MB; the least recently seen go first."""


class SplitHabits:
    """See the module."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Place, dict[int, float]] = OrderedDict()

    def likeliest(self, place: Place) -> tuple[int, float]:
        """The token that the model is likeliest to write there, and the probability."""
        salt, _, canonical = place
        own, general = self._counts.get(place, {}), self._counts.get((salt, _ANYWHERE, canonical), {})
        num_own, num_general = sum(own.values()), sum(general.values()) + _PRIOR_WEIGHT

        def probability(token_id: int) -> float:
            prior = _PRIOR_WEIGHT * _PRIOR if token_id == canonical else 0.0
            believed = (general.get(token_id, 0.0) + prior) / num_general
            return (own.get(token_id, 0.0) + _GENERAL_WEIGHT * believed) / (num_own + _GENERAL_WEIGHT)

        best = max((canonical, *own, *general), key=probability)
        return best, probability(best)

    def note(self, place: Place, token_id: int) -> None:
        """The model wrote this there."""
        salt, _, canonical = place
        for each in (place, (salt, _ANYWHERE, canonical)):
            counts = self._counts.pop(each, {})
            for known in counts:
                counts[known] *= _DECAY
            counts[token_id] = counts.get(token_id, 0.0) + 1
            self._counts[each] = counts
        while len(self._counts) > _MAX_PLACES:
            self._counts.popitem(last=False)
