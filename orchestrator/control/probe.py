"""Drafts that one request tries although they do not seem to pay: longer ones as long as all is accepted."""

from __future__ import annotations

_FIRST_TOKENS = 2
"""Draft tokens of the first one: enough to see whether guesses hold again."""
_MAX_ROUNDS = 64
"""Of which every draft token is accepted: what is believed of them has followed by then."""


class Probe:
    """The one that is under way, if any. When it is time for one, `probing.py` says."""

    def __init__(self) -> None:
        self.num_draft_tokens = 0
        """Of the round under way or due at once; 0: none."""
        self.num_rounds = 0
        """Of which all was accepted."""

    @property
    def is_under_way(self) -> bool:
        return self.num_draft_tokens > 0

    @property
    def is_exhausted(self) -> bool:
        """Whether more rounds would tell nothing new."""
        return self.num_rounds >= _MAX_ROUNDS

    def begin(self) -> None:
        self.num_draft_tokens = _FIRST_TOKENS

    def go_on(self, max_draft_tokens: int) -> None:
        """Guesses hold: another one at once, and further."""
        self.num_draft_tokens = min(2 * self.num_draft_tokens, max_draft_tokens)
        self.num_rounds += 1

    def end(self) -> None:
        """Idempotent."""
        self.num_draft_tokens = self.num_rounds = 0
