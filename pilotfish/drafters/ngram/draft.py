"""Prompt lookup (Saxena 2023; `ngram` in vLLM): what followed the latest occurrence of the last few tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul

from pilotfish.config import DraftConfig
from pilotfish.speculation.lookup.index import LookupDraft, LookupIndex, continuation_probability
from pilotfish.types import TreeRequest

_LONGEST_MATCH = 16
"""Tokens compared to see how far a match goes back: a longer one would be believed no more."""


class NgramIndex:
    """See LookupIndex: the tokens of one sequence with an index of their n-grams, kept up token by token.

    Appending a token costs O(prompt_lookup_max - prompt_lookup_min + 1), proposing k tokens the same
    plus O(k), whatever the length: nothing is rescanned. It does not branch.
    """

    def __init__(self, prompt_lookup_min: int, prompt_lookup_max: int, *, min_probability: float = 0.0) -> None:
        """N-grams of prompt_lookup_min to prompt_lookup_max tokens are looked up, longest first.

        A draft ends before the first token whose chance to be accepted is below min_probability.
        Raises: ValueError unless 1 <= prompt_lookup_min <= prompt_lookup_max.
        """
        if not 1 <= prompt_lookup_min <= prompt_lookup_max:
            raise ValueError(f"n-gram lengths {prompt_lookup_min} to {prompt_lookup_max} make no range from 1 up")
        self._min_probability = min_probability
        self._sizes = range(prompt_lookup_min, prompt_lookup_max + 1)
        self._token_ids: list[int] = []
        # N-gram -> index of the token after its latest occurrence. The n-grams that end the sequence
        # enter when their successor comes, so that a lookup never finds the end itself.
        self._successors: dict[tuple[int, ...], int] = {}
        # What each entry replaced, in the order of indexing, for truncate.
        self._replaced: list[int | None] = []

    def __len__(self) -> int:
        return len(self._token_ids)

    @property
    def token_ids(self) -> Sequence[int]:
        return self._token_ids

    def append(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            successor = len(self._token_ids)
            for ngram in self._ngrams_before(successor):
                self._replaced.append(self._successors.get(ngram))
                self._successors[ngram] = successor
            self._token_ids.append(token_id)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= len(self._token_ids):
            raise ValueError(f"cannot cut {len(self._token_ids)} tokens to {length}")
        for successor in range(len(self._token_ids) - 1, length - 1, -1):
            for ngram in reversed(self._ngrams_before(successor)):
                replaced = self._replaced.pop()
                if replaced is None:
                    del self._successors[ngram]
                else:
                    self._successors[ngram] = replaced
        del self._token_ids[length:]

    def propose(self, max_depth: int, tree: TreeRequest | None = None) -> LookupDraft:  # noqa: ARG002
        """The tokens after the latest earlier occurrence of the longest known n-gram at the end.

        A copy that reaches the end goes on with what it copied (as in LZ77), so a repetition is
        continued for all max_depth tokens.
        """
        for ngram in reversed(self._ngrams_before(len(self._token_ids))):
            source = self._successors.get(ngram)
            if source is not None:
                return self._copy(source, max_depth, self._num_matched_tokens(source, len(ngram)))
        return LookupDraft()

    def finish(self, num_prompt_tokens: int) -> None:
        """Nothing of the sequence serves others."""

    def _copy(self, source: int, max_tokens: int, num_matched_tokens: int) -> LookupDraft:
        chances = (continuation_probability(1, 1, num_matched_tokens + offset) for offset in range(max_tokens))
        probabilities = [chance for chance in accumulate(chances, mul) if chance >= self._min_probability]
        copied = self._token_ids[source : source + len(probabilities)]
        period = len(self._token_ids) - source
        while len(copied) < len(probabilities):
            copied.append(copied[len(copied) - period])
        return LookupDraft(tuple(copied), probabilities=tuple(probabilities))

    def _num_matched_tokens(self, source: int, num_matched: int) -> int:
        """How many tokens before `source` equal those at the end, num_matched of them for certain."""
        tokens = self._token_ids
        end = len(tokens)
        while (
            num_matched < min(_LONGEST_MATCH, source)
            and tokens[source - num_matched - 1] == tokens[end - num_matched - 1]
        ):
            num_matched += 1
        return num_matched

    def _ngrams_before(self, end: int) -> list[tuple[int, ...]]:
        """The n-grams whose last token is at end - 1, shortest first."""
        return [tuple(self._token_ids[end - size : end]) for size in self._sizes if size <= end]


def lookup(config: DraftConfig) -> Callable[[str], LookupIndex]:
    """Indexes as configured; they share nothing, whatever the salt."""
    return lambda _: NgramIndex(
        config.prompt_lookup_min, config.prompt_lookup_max, min_probability=config.lookup_min_probability
    )
