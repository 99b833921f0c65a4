"""What recent requests answered, for the lookups of others: bounded, and forgotten in order of age."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

from pilotfish.drafters.suffix.automaton import ROOT, SuffixAutomaton

SEPARATOR = -1
"""Stands after every output; no token id, and never proposed."""
MIN_OUTPUT_TOKENS = 8
"""Shorter outputs teach little."""
_SHORTEST_MATCH = 2
"""A single token says little among so many texts: matching it cost more verifications than it saved."""
_LONGEST_MATCH = 32
"""Tokens of a sequence's end that are compared with the outputs when matching begins anew."""


def salt_of(cache_salt: str) -> int:
    """Added to the token ids of a sequence, so that it finds only what sequences of the same salt said."""
    digest = hashlib.blake2b(cache_salt.encode(), digest_size=16).digest() if cache_salt else b""
    return int.from_bytes(digest) << 32  # above all token ids


class RecentOutputs:
    """The outputs of ended requests, at most about `capacity` tokens of them.

    Two automata: the younger takes what is new; once it holds half the capacity the older one is
    forgotten as a whole and the younger takes its place. So at least the latest half is always there,
    and forgetting costs nothing. Outputs wait to be indexed until `index_some` is called, which bounds
    the work of one call; what is forgotten is taken apart at the same pace. Token ids are salted (`salt_of`): all
    salts share the capacity, and nothing else.
    """

    def __init__(self, capacity: int) -> None:
        """capacity: in tokens, at least 2."""
        if capacity < 2:
            raise ValueError(f"a store of {capacity} tokens holds nothing")
        self._half = capacity // 2
        self.generations = (SuffixAutomaton(), SuffixAutomaton())
        """The older and the younger automaton; replaced when the younger is full."""
        self._retired = SuffixAutomaton()
        self._waiting: deque[int] = deque(maxlen=self._half)

    def __len__(self) -> int:
        """Tokens that can be found, separators included."""
        return sum(map(len, self.generations))

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember the output of a request that has ended."""
        if len(token_ids) >= MIN_OUTPUT_TOKENS:
            self._waiting.extend((*token_ids, SEPARATOR))

    def index_some(self, max_tokens: int) -> None:
        """Index up to max_tokens of what waits."""
        older, younger = self.generations
        for _ in range(min(max_tokens, len(self._waiting))):
            if len(younger) >= self._half:
                self._retired, older, younger = older, younger, SuffixAutomaton()
                self.generations = (older, younger)
            younger.append((self._waiting.popleft(),))
            # Freed at once, it would hold up everything else for milliseconds.
            self._retired.truncate(max(0, len(self._retired) - 1))


class MatchCursor:
    """The place of one sequence's end in an automaton of other texts."""

    def __init__(self, automaton: SuffixAutomaton, salt: int = 0) -> None:
        """salt: the sequence's; the automaton's token ids are salted."""
        self.automaton = automaton
        self._salt = salt
        self._state = ROOT
        self._num_matched = 0
        self._position = 0
        """Tokens of the sequence that are taken in."""

    def rewind(self, length: int) -> None:
        """The sequence was cut to `length` tokens."""
        if length < self._position:
            self._restart(length)

    def follow(self, token_ids: Sequence[int]) -> tuple[int, int]:
        """(state, tokens) of the longest suffix of the sequence, now token_ids, that the automaton holds.

        (ROOT, 0) where it is too short to count. What the automaton learns meanwhile is met from there on.
        """
        if len(token_ids) - self._position > _LONGEST_MATCH:
            self._restart(len(token_ids))
        for position in range(self._position, len(token_ids)):
            token_id = self._salt + token_ids[position]
            self._state, self._num_matched = self.automaton.advance(self._state, self._num_matched, token_id)
        self._position = len(token_ids)
        return (self._state, self._num_matched) if self._num_matched >= _SHORTEST_MATCH else (ROOT, 0)

    def _restart(self, length: int) -> None:
        self._state = ROOT
        self._num_matched = 0
        self._position = max(0, length - _LONGEST_MATCH)
