"""Words that an answer does not hold, as tokens."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer

MAX_BAD_WORDS = 128
"""Each is looked for at every position."""
MAX_BAD_WORD_CHARS = 256
MAX_BAD_WORD_BYTES = 4096
"""All bad words of a request together, in UTF-8. They are tokenised on the event loop, and every answer of a request
sends their tokens to a replica: 128 words of 256 emoji held the loop for 84 ms, and the steps of others for 0.9 s where
16 answers had them."""


def bad_word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word, and those of it behind a space where they are as many, as vLLM has it.

    Raises InvalidRequestError for words that are too many, too long or empty.
    """
    if len(words) > MAX_BAD_WORDS or not all(word.strip() for word in words):
        raise InvalidRequestError(f"bad_words must hold words, {MAX_BAD_WORDS} of them at most", param="bad_words")
    if max(map(len, words), default=0) > MAX_BAD_WORD_CHARS:
        raise InvalidRequestError(
            f"bad_words holds one of more than {MAX_BAD_WORD_CHARS} characters", param="bad_words"
        )
    num_bytes = sum(len(word.encode(errors="replace")) for word in words)
    if num_bytes > MAX_BAD_WORD_BYTES:
        raise InvalidRequestError(
            f"bad_words have {num_bytes} bytes in all; at most {MAX_BAD_WORD_BYTES} are allowed", param="bad_words"
        )
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        alone, behind = (
            tuple(tokenizer.encode(space + word.lstrip(), add_special_tokens=False)) for space in ("", " ")
        )
        sequences[alone] = None
        if len(behind) == len(alone):
            sequences[behind] = None
    return tuple(sequences)
