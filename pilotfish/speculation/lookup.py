"""Prompt lookup: draft tokens copied from where the sequence's last tokens occurred before.

Prompt lookup decoding (Saxena 2023); `ngram` in vLLM. Pure and torch-free: the draft service and the
orchestrator both use it.
"""

from __future__ import annotations

from collections.abc import Sequence


class NgramIndex:
    """The tokens of one sequence with an index of their n-grams, kept up token by token.

    Appending a token costs O(prompt_lookup_max - prompt_lookup_min + 1), proposing k tokens the same
    plus O(k), whatever the length: nothing is rescanned.
    """

    def __init__(self, prompt_lookup_min: int, prompt_lookup_max: int) -> None:
        """N-grams of prompt_lookup_min to prompt_lookup_max tokens are looked up, longest first.

        Raises: ValueError unless 1 <= prompt_lookup_min <= prompt_lookup_max.
        """
        if not 1 <= prompt_lookup_min <= prompt_lookup_max:
            raise ValueError(f"n-gram lengths {prompt_lookup_min} to {prompt_lookup_max} make no range from 1 up")
        self._sizes = range(prompt_lookup_min, prompt_lookup_max + 1)
        self._token_ids: list[int] = []
        # N-gram -> index of the token after its latest occurrence. The n-grams that end the sequence
        # enter when their successor comes, so that a lookup never finds the end itself.
        self._successors: dict[tuple[int, ...], int] = {}
        # What each entry replaced, in the order of indexing, for truncate.
        self._replaced: list[int | None] = []

    def __len__(self) -> int:
        """Tokens held."""
        return len(self._token_ids)

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        for token_id in token_ids:
            successor = len(self._token_ids)
            for ngram in self._ngrams_before(successor):
                self._replaced.append(self._successors.get(ngram))
                self._successors[ngram] = successor
            self._token_ids.append(token_id)

    def truncate(self, length: int) -> None:
        """Forget the tokens from index `length` on; as if they had never been appended.

        Raises: ValueError when fewer than `length` tokens are held.
        """
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

    def propose(self, k: int) -> tuple[int, ...]:
        """The k tokens after the latest earlier occurrence of the longest known n-gram at the end.

        Empty when no n-gram recurs. A copy that reaches the end goes on with what it copied (as in
        LZ77), so a repetition is continued for all k tokens.
        """
        for ngram in reversed(self._ngrams_before(len(self._token_ids))):
            source = self._successors.get(ngram)
            if source is not None:
                copied = self._token_ids[source : source + k]
                period = len(self._token_ids) - source
                while len(copied) < k:
                    copied.append(copied[len(copied) - period])
                return tuple(copied)
        return ()

    def _ngrams_before(self, end: int) -> list[tuple[int, ...]]:
        """The n-grams whose last token is at end - 1, shortest first."""
        return [tuple(self._token_ids[end - size : end]) for size in self._sizes if size <= end]
