"""Whether speculation keeps what its prices promise: tokens that all sequences got, over those that were expected.

Prices leave out what no round shows: an answer's last drafts, which are shorter, sequences that are off by themselves
beside others' long steps. What is left out is the same for minutes, so it is learned slowly, and corrects a promise
that follows the load at once.
"""

from __future__ import annotations

_PRIOR_TOKENS = 256.0
"""For which the promise is believed at first."""
_MEMORY_ROUNDS = 512
"""How far back it looks at least: what rounds yield scatters by half."""
_MEMORY_ROUNDS_EACH = 16
"""The same, of each sequence."""
_LEAST, _MOST = 0.7, 1.05
"""Of what is remembered: a bad second must not outweigh minutes, nor a good one hide a loss."""


class AchievedSpeed:
    """Decayed sums, of which the ratio is told."""

    def __init__(self) -> None:
        self._num_tokens = self._num_expected = _PRIOR_TOKENS

    @property
    def ratio(self) -> float:
        """Achieved over expected, 1 at most: who got more than was promised may have been lucky, and where speculation
        is off nothing would tell."""
        return min(1.0, self._num_tokens / self._num_expected)

    def hope(self) -> None:
        """Another try: half of what was missing is believed."""
        self._num_tokens = (self._num_tokens + self._num_expected) / 2

    def add(self, num_tokens: int, num_expected: float, num_sequences: int) -> None:
        """One of num_sequences got num_tokens in a time in which num_expected were."""
        decay = 1 - 1 / max(_MEMORY_ROUNDS, _MEMORY_ROUNDS_EACH * num_sequences)
        self._num_expected = decay * self._num_expected + num_expected
        num_tokens_now = decay * self._num_tokens + num_tokens
        self._num_tokens = min(_MOST * self._num_expected, max(_LEAST * self._num_expected, num_tokens_now))
