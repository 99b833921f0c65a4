"""A suffix automaton that grows and shrinks at its end and counts what it holds. Pure and torch-free.

Blumer et al. 1985: the smallest automaton of all substrings of a text. A state stands for the
substrings that occur at exactly the same places; its link leads to the longest of its suffixes that
occurs at more places. So the link of the whole text's state is the longest suffix that has occurred
before, without any search.
"""

from __future__ import annotations

from collections.abc import Sequence

ROOT = 0
"""The state of the empty substring."""
_MAX_COUNTED_SUFFIXES = 32
"""States counted at each token, longest suffixes first: bounds the work where a text repeats itself without
end (there the short suffixes, which nobody asks for, are undercounted)."""


class SuffixAutomaton:
    """The substrings of one token sequence, with how often each occurs.

    Appending is amortised constant time, cutting the end costs as much as appending it did. At most
    two states a token.
    """

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._ends = [ROOT]
        """State of the first i tokens."""
        self._lengths = [0]
        """Tokens of a state's longest substring."""
        self._links = [-1]
        self._counts = [0]
        self._transitions: list[dict[int, int]] = [{}]
        self._split: dict[int, int] = {}
        """State made by splitting another -> that other."""

    def __len__(self) -> int:
        """Tokens held."""
        return len(self._token_ids)

    @property
    def token_ids(self) -> Sequence[int]:
        """The tokens held; not to be changed."""
        return self._token_ids

    @property
    def recurring(self) -> tuple[int, int]:
        """(state, tokens) of the longest suffix that occurs earlier, too; (ROOT, 0) if none does."""
        state = max(ROOT, self._links[self._ends[-1]])
        return state, self._lengths[state]

    def followers(self, state: int) -> dict[int, int]:
        """{token id: state} of what followed the state's substrings, by first appearance; not to be changed."""
        return self._transitions[state]

    def count(self, state: int) -> int:
        """Occurrences of the state's substrings."""
        return self._counts[state]

    def shorter(self, state: int) -> tuple[int, int]:
        """(state, tokens) of the longest suffix that occurs at more places than the state's substrings."""
        link = max(ROOT, self._links[state])
        return link, self._lengths[link]

    def advance(self, state: int, num_tokens: int, token_id: int) -> tuple[int, int]:
        """(state, tokens) of the longest suffix of `a match, then token_id` that occurs.

        The match is the last num_tokens tokens of `state`'s substrings; it may be older than the latest
        appends, which split states.
        """
        state, num_tokens = self._normalised(state, num_tokens)
        while token_id not in self._transitions[state]:
            if state == ROOT:
                return ROOT, 0
            state, num_tokens = self.shorter(state)
        return self._transitions[state][token_id], num_tokens + 1

    def _normalised(self, state: int, num_tokens: int) -> tuple[int, int]:
        while state != ROOT and self._lengths[self._links[state]] >= num_tokens:
            state = self._links[state]
        return state, num_tokens

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        for token_id in token_ids:
            self._append(token_id)

    def _append(self, token_id: int) -> None:
        last = self._ends[-1]
        end = self._add_state(self._lengths[last] + 1, ROOT, {}, 0)
        state = last
        while state >= 0 and token_id not in self._transitions[state]:
            self._transitions[state][token_id] = end
            state = self._links[state]
        if state >= 0:
            follower = self._transitions[state][token_id]
            if self._lengths[follower] > self._lengths[state] + 1:
                follower = self._split_off(state, token_id, follower)
            self._links[end] = follower
        self._token_ids.append(token_id)
        self._ends.append(end)
        self._count_suffixes(1)

    def _split_off(self, state: int, token_id: int, follower: int) -> int:
        """The short substrings of `follower` occur at one more place than its long ones: a state of their own."""
        split = self._add_state(
            self._lengths[state] + 1, self._links[follower], dict(self._transitions[follower]), self._counts[follower]
        )
        self._redirect(state, token_id, follower, split)
        self._links[follower] = split
        self._split[split] = follower
        return split

    def _redirect(self, state: int, token_id: int, old: int, new: int) -> None:
        """Lead token_id from `state` and its suffixes to `new` where it led to `old`."""
        while state >= 0 and self._transitions[state].get(token_id) == old:
            self._transitions[state][token_id] = new
            state = self._links[state]

    def _count_suffixes(self, change: int) -> None:
        state = self._ends[-1]
        for _ in range(_MAX_COUNTED_SUFFIXES):
            if state == ROOT:
                return
            self._counts[state] += change
            state = self._links[state]

    def truncate(self, length: int) -> None:
        """Forget the tokens from index `length` on; as if they had never been appended.

        Raises: ValueError when fewer than `length` tokens are held.
        """
        if not 0 <= length <= len(self._token_ids):
            raise ValueError(f"cannot cut {len(self._token_ids)} tokens to {length}")
        while len(self._token_ids) > length:
            self._pop()

    def _pop(self) -> None:
        """Undo the latest append, step by step."""
        self._count_suffixes(-1)
        token_id, end = self._token_ids.pop(), self._ends.pop()
        state = self._ends[-1]
        while state >= 0 and self._transitions[state].get(token_id) == end:
            del self._transitions[state][token_id]
            state = self._links[state]
        split = self._links[end]
        if split > end:
            follower = self._split.pop(split)
            self._redirect(state, token_id, split, follower)
            self._links[follower] = self._links[split]
            self._drop_last_state()
        self._drop_last_state()

    def _add_state(self, length: int, link: int, transitions: dict[int, int], count: int) -> int:
        self._lengths.append(length)
        self._links.append(link)
        self._transitions.append(transitions)
        self._counts.append(count)
        return len(self._lengths) - 1

    def _drop_last_state(self) -> None:
        for column in (self._lengths, self._links, self._transitions, self._counts):
            column.pop()
