"""A language model of one line: the next token is a hash of the tokens before it.

`length` is that of the text, where `context` is only its end (at least the last `order` tokens); 0: it is the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.types import SamplingParams

_MASK = 2**64 - 1
_MIX_FACTOR = 0x9E3779B97F4A7C15
_DRAW_FACTOR = 0xBF58476D1CE4E5B9
_RANK_FACTOR = 0x94D049BB133111EB
_MAX_RANK = 64
_FORCING_BIAS = 100.0
"""Makes all other tokens impossible, as good as."""


@dataclass(frozen=True)
class HashLanguageModel:
    """Deterministic in every process. Greedy text depends on the context alone, sampled text also on the seed."""

    vocab_size: int = 256
    seed: int = 0
    order: int = 4
    """Tokens of context that decide the next one."""
    first_token_id: int = 0
    """Ids below it are never said: special tokens, usually."""
    acceptance_seed: int = 0
    """Seed of what a drafter gets right; the text is the same with any."""
    step_acceptance: float = 0.8
    """Probability that the best of some tokens is said that a bias forces, else the worst."""

    def next_token(self, context: Sequence[int], sampling: SamplingParams, length: int = 0) -> int:
        """The token after `context`. Costs under a microsecond, whatever the length.

        Of tokens that a bias forces, which are a judge's scale from worst to best, it is one of the ends, by all of the
        text: only who has that knows which. Where only some are allowed, each is as likely as the others.
        """
        length = length or len(context)
        number = self._hash(context, sampling, length)
        allowed = sampling.allowed_token_ids
        forced = [token_id for token_id, bias in sampling.logit_bias if bias >= _FORCING_BIAS]
        if scale := [token_id for token_id in forced if not allowed or token_id in allowed]:
            # The question at the end is always the same: what it is about makes the answers differ.
            draw = (hash((self.acceptance_seed, *context)) & _MASK) * _RANK_FACTOR & _MASK
            return scale[-1 if draw < self.step_acceptance * 2**64 else 0]
        if allowed:
            # The text may run in circles: the length makes the tokens differ.
            draw = (hash((number, length)) & _MASK) * _RANK_FACTOR & _MASK
            return allowed[(draw >> 20) % len(allowed)]
        return self._token(number)

    def draft_token(self, context: Sequence[int], sampling: SamplingParams, acceptance: float, length: int = 0) -> int:
        """The next_token with probability `acceptance`, another token otherwise.

        Decided by the context and its length: independent from token to token even where greedy text runs in circles.
        """
        length = length or len(context)
        number = self._hash(context, sampling, length)
        token_id = self.next_token(context, sampling, length)
        draw = (hash((number, length, self.acceptance_seed)) & _MASK) * _DRAW_FACTOR & _MASK
        if draw < acceptance * 2**64:
            return token_id
        num_tokens = self.vocab_size - self.first_token_id
        return self.first_token_id + (token_id - self.first_token_id + 1 + draw % (num_tokens - 1)) % num_tokens

    def rank(self, context: Sequence[int], sampling: SamplingParams, acceptance: float, length: int = 0) -> int:
        """How many of a drafter's next best guesses are wrong after its best one was: each holds with `acceptance`.

        Decided by the context, apart from what `draft_token` decides.
        """
        length = length or len(context)
        number = self._hash(context, sampling, length)
        draw = (hash((number, length, self.acceptance_seed)) & _MASK) * _RANK_FACTOR & _MASK
        rest, rank = draw / 2**64, 0
        while rank < _MAX_RANK and rest >= acceptance:
            rest, rank = (rest - acceptance) / (1 - acceptance), rank + 1
        return rank

    def wrong_tokens(self, next_token: int, draft_token: int, count: int) -> list[int]:
        """Other tokens than these two, as many as there are up to count."""
        num_tokens = self.vocab_size - self.first_token_id
        around = (
            self.first_token_id + (next_token - self.first_token_id + offset) % num_tokens
            for offset in range(1, min(count + 2, num_tokens))
        )
        return [token_id for token_id in around if token_id != draft_token][:count]

    def _token(self, number: int) -> int:
        # The high bits are the well mixed ones.
        return self.first_token_id + (number >> 20) % (self.vocab_size - self.first_token_id)

    def _hash(self, context: Sequence[int], sampling: SamplingParams, length: int) -> int:
        # The position keys sampled text, as it does in the real engine; greedy text may run in circles.
        key = (0, 0) if sampling.temperature == 0 else (sampling.seed + 1, length)
        # Hashes of integer tuples are the same in every process, unlike those of strings.
        number = hash((self.seed, *key, *context[-self.order :]))
        return (number & _MASK) * _MIX_FACTOR & _MASK
