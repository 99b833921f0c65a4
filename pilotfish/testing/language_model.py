"""A language model of one line: the next token is a hash of the tokens before it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.types import SamplingParams

_DRAFT_SALT = b"draft"


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
        """The token after `context`. Costs O(order)."""
        return self._token(self._hash(context, sampling, b""))

    def draft_token(self, context: Sequence[int], sampling: SamplingParams, acceptance: float) -> int:
        """next_token with probability `acceptance`, decided by the context; another token otherwise."""
        token_id = self.next_token(context, sampling)
        number = self._hash(context, sampling, _DRAFT_SALT)
        if number < acceptance * 2**64:
            return token_id
        num_tokens = self.vocab_size - self.first_token_id
        return self.first_token_id + (token_id - self.first_token_id + 1 + number % (num_tokens - 1)) % num_tokens

    def _token(self, number: int) -> int:
        return self.first_token_id + number % (self.vocab_size - self.first_token_id)

    def _hash(self, context: Sequence[int], sampling: SamplingParams, salt: bytes) -> int:
        # The position keys sampled text, as it does in the real engine; greedy text may run in circles.
        key = (0, 0) if sampling.is_greedy else (sampling.seed + 1, len(context))
        tokens = context[-self.order :]
        data = struct.pack(f"<{3 + len(tokens)}Q", self.seed, *(part % 2**64 for part in key), *tokens)
        return int.from_bytes(hashlib.blake2b(salt + data, digest_size=8).digest(), "little")
