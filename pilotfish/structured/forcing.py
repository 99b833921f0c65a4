"""Text that a grammar leaves no choice about, found on masks: a byte or token at a time, as far as all that is allowed
begins with it. Within bounds, which the library has none of (see `_NO_FORCING` in grammar.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLTokenizer

_MANY_WORDS = 256
"""More 32-bit words of a mask with a token in them: text is free here. Tokens that begin with one byte fill fewer."""


@dataclass(frozen=True, slots=True)
class ForcedText:
    """What must follow."""

    text: bytes = b""
    """May end within a character: a branch may lie there."""
    end_token_id: int | None = None
    """Behind the text only this special token may follow; None: another one, or it is not known."""
    next_bytes: frozenset[int] = frozenset()
    """What may follow the text, byte by byte; empty: almost anything, or it is not known."""

    def behind(self, text: bytes) -> ForcedText | None:
        """What must follow once `text` has come; None: that is not known, as none of this is left or it came
        otherwise."""
        if len(text) >= len(self.text) or not self.text.startswith(text):
            return None
        return ForcedText(self.text[len(text) :], self.end_token_id, self.next_bytes)


def forced_text(
    matcher: LLMatcher,
    vocabulary: LLTokenizer,
    *,
    max_bytes: int,
    max_s: float,
    clock: Callable[[], float] = time.thread_time,
) -> ForcedText:
    """What must follow where the matcher stands: about max_bytes at most, and what max_s of computing can find.

    Moves the matcher: give it a copy.
    """
    text, certain, end_s = b"", b"", clock() + max_s
    while True:
        mask = matcher.compute_bitmask()
        if matcher.is_error():
            # Nor can an answer go on from here: it may end before, and is not to be led to it.
            return ForcedText(text[: len(text) - len(certain)])
        token_ids = few_tokens(mask)
        if not token_ids or any(map(vocabulary.is_special_token, token_ids)):
            return ForcedText(text, token_ids[0] if len(token_ids) == 1 else None)
        texts = [vocabulary.decode_bytes([token_id]) for token_id in token_ids]
        certain = min(texts, key=len)
        if not certain or not all(each.startswith(certain) for each in texts):
            return ForcedText(text, next_bytes=frozenset(each[0] for each in texts if each))
        if len(text) >= max_bytes or clock() >= end_s:
            return ForcedText(text)
        text += certain
        matcher.consume_token(token_ids[texts.index(certain)])


def few_tokens(mask: bytes) -> list[int]:
    """The allowed tokens, ascending; none where there are many."""
    words = np.frombuffer(mask, dtype="<u4")
    places = np.flatnonzero(words)
    if places.size > _MANY_WORDS:
        return []
    token_ids: list[int] = []
    for place in places.tolist():
        bits = int(words[place])
        while bits:
            lowest = bits & -bits
            token_ids.append(32 * place + lowest.bit_length() - 1)
            bits ^= lowest
    return token_ids
