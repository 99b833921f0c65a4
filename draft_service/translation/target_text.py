"""An answer of the target's as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotfish.models.tokens.continuation import Continuation
from pilotfish.models.tokens.detokenizer import whole_characters
from pilotfish.models.tokens.tokenizer import Tokenizer

_WINDOW_TOKENS = 16
"""Tokens before a text that decide how it is tokenised."""


class _End(NamedTuple):
    """Where a token ends in the text."""

    num_chars: int
    """Whole characters up to there."""
    rest: bytes = b""
    """Bytes behind them that do not make a character yet."""


class TargetText:
    """The answer's tokens, and the whole characters that they stand for. Bytes that are no character become U+FFFD."""

    def __init__(self, tokenizer: Tokenizer, continuation: Continuation) -> None:
        self._token_bytes = tokenizer.bytes_by_token(skip_special=False)
        self._continuation = continuation
        self._token_ids: list[int] = []
        self._ends = [_End(0)]
        """Where the answer begins, and where each token ends."""

    def __len__(self) -> int:
        """Tokens."""
        return len(self._token_ids)

    @property
    def rest(self) -> bytes:
        """Bytes at the end that do not make a character yet."""
        return self._ends[-1].rest

    def replace_from(self, length: int, token_ids: Sequence[int]) -> tuple[int, str]:
        """Keep the first `length` tokens, and put these behind them; the whole characters that stay, and the text that
        is now behind them."""
        del self._token_ids[length:], self._ends[length + 1 :]
        num_kept, texts = self._ends[-1].num_chars, []
        for token_id in token_ids:
            text, rest = whole_characters(self._ends[-1].rest + self._token_bytes[token_id])
            texts.append(text)
            self._token_ids.append(token_id)
            self._ends.append(_End(self._ends[-1].num_chars + len(text), rest))
        return num_kept, "".join(texts)

    def continued_by(self, data: bytes, text: str) -> list[int]:
        """Tokens that the target would write for more bytes behind its whole characters, which are `text`; none where
        they do not begin with the bytes that are there already."""
        if not data.startswith(self.rest):
            return []
        more, _ = whole_characters(data)
        first = max(0, len(self) - _WINDOW_TOKENS)
        while first and self._ends[first].rest:
            first -= 1
        known = self._token_ids[first:]
        token_ids, _ = self._continuation.encode(text[self._ends[first].num_chars :] + more)
        if token_ids[: len(known)] == known:
            return token_ids[len(known) :]
        return [] if self.rest else self._continuation.encode(more)[0]
