"""Drafts that one request tries although they do not seem to pay: longer ones as long as all is accepted."""

from __future__ import annotations

from orchestrator.control.probing import FIRST_INTERVAL_TOKENS, longer_interval_tokens

_FIRST_TOKENS = 2
"""Draft tokens of the first one: enough to see whether guesses hold again."""
_MAX_ROUNDS = 64
"""Of which every draft token is accepted: what is believed of them has followed by then."""


class Probe:
    """The one that is under way, if any, and how long the request waits for the next. When it is time for one,
    `probing.py` says."""

    def __init__(self) -> None:
        self.num_draft_tokens = 0
        """Of the round under way or due at once; 0: none."""
        self.num_rounds = 0
        """Of which all was accepted."""
        self.interval_tokens = FIRST_INTERVAL_TOKENS
        """Of this request's own plain tokens before the next one, at least: that others' drafts hold says little of
        one whose drafts do not."""

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

    def add_rejection(self) -> None:
        """Guesses do not hold."""
        self.interval_tokens = longer_interval_tokens(self.interval_tokens)

    def add_success(self) -> None:
        """Drafts pay for this request: it is over."""
        self.end()
        self.interval_tokens = FIRST_INTERVAL_TOKENS

    def end(self) -> None:
        """Idempotent."""
        self.num_draft_tokens = self.num_rounds = 0
