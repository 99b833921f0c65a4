"""When speculation that does not seem to pay is tried again, on one target replica."""

from __future__ import annotations

from collections.abc import Callable

TokenCounter = Callable[[int], None]
"""Told how many tokens were decoded plainly."""

FIRST_INTERVAL_TOKENS, _MAX_INTERVAL_TOKENS = 32, 512
"""Between two probes: after a draft that paid, and after many that failed."""


class Probing:
    """Counts what was decoded plainly in probes' stead, by all requests that decode there."""

    def __init__(self) -> None:
        self._num_plain_tokens = 0
        """Since the last probe."""

    def count_plain_tokens(self, num_tokens: int) -> None:
        """Of any request, in a probe's stead."""
        self._num_plain_tokens += num_tokens

    def takes_probe(self, interval_tokens: int, num_own_tokens: int, num_sequences: int) -> bool:
        """Whether a request tries a draft now; whoever is told so does.

        It is time after interval_tokens of its own (num_own_tokens so far), or after as many of each of num_sequences
        together: answers may be shorter than the interval.
        """
        if not self.is_due(interval_tokens, num_own_tokens, num_sequences):
            return False
        self._num_plain_tokens = 0
        return True

    def is_due(self, interval_tokens: int, num_own_tokens: int, num_sequences: int) -> bool:
        """Whether takes_probe would say so."""
        return self._num_plain_tokens >= interval_tokens * num_sequences or num_own_tokens >= interval_tokens


def longer_interval_tokens(interval_tokens: int, max_tokens: int = _MAX_INTERVAL_TOKENS) -> int:
    """After a probe that failed, or found nothing."""
    return max(interval_tokens, min(2 * interval_tokens, max_tokens))
