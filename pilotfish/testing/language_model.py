"""A language model of one line: the next token is a hash of the tokens before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.types import SamplingParams

_MASK = 2**64 - 1
_MIX_FACTOR = 0x9E3779B97F4A7C15
_DRAW_FACTOR = 0xBF58476D1CE4E5B9


@dataclass(frozen=True)
class HashLanguageModel:
    """Deterministic in every process. Greedy text depends on the context alone, sampled text also on the seed."""

    vocab_size: int = 256
    seed: int = 0
    order: int = 4
    """Tokens of context that decide the next one."""
    first_token_id: int = 0
    """Ids below it are never said: special tokens, usually."""

    def next_token(self, context: Sequence[int], sampling: SamplingParams) -> int:
        """The token after `context`. Costs under a microsecond, whatever the length."""
        return self._token(self._hash(context, sampling))

    def draft_token(self, context: Sequence[int], sampling: SamplingParams, acceptance: float) -> int:
        """next_token with probability `acceptance`, decided by the context; another token otherwise."""
        number = self._hash(context, sampling)
        token_id = self._token(number)
        draw = number * _DRAW_FACTOR & _MASK
        if draw < acceptance * 2**64:
            return token_id
        num_tokens = self.vocab_size - self.first_token_id
        return self.first_token_id + (token_id - self.first_token_id + 1 + draw % (num_tokens - 1)) % num_tokens

    def _token(self, number: int) -> int:
        # The high bits are the well mixed ones.
        return self.first_token_id + (number >> 20) % (self.vocab_size - self.first_token_id)

    def _hash(self, context: Sequence[int], sampling: SamplingParams) -> int:
        # The position keys sampled text, as it does in the real engine; greedy text may run in circles.
        key = (0, 0) if sampling.temperature == 0 else (sampling.seed + 1, len(context))
        # Hashes of integer tuples are the same in every process, unlike those of strings.
        number = hash((self.seed, *key, *context[-self.order :]))
        return (number & _MASK) * _MIX_FACTOR & _MASK
