"""A language model whose text everybody can foretell."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

VOCAB_SIZE = 50


def next_token(token_ids: Sequence[int]) -> int:
    """The toy language model: a hash of the last two tokens."""
    return zlib.crc32(bytes(token_ids[-2:])) % VOCAB_SIZE


def continuation(token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
    """What the toy model says after token_ids."""
    tokens = list(token_ids)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens))
    return tuple(tokens[len(token_ids) :])
