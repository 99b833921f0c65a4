"""Tokens of one sequence while they arrive: their text, and where in it each begins. Torch-free.

A character may need several tokens, so a token's text is not always known when it comes. Bytes that are no character
become U+FFFD as Python's `replace` has it; tokenizers that fall back on bytes decode a run of them all at once, and may
show more of those.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from pilotfish.models.tokens.token_bytes import TextBytes, TokenBytes

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


def whole_characters(data: bytes) -> tuple[str, bytes]:
    """The characters of the bytes, and what is left at their end that may begin another."""
    decoder = _new_utf8_decoder(errors="replace")
    return decoder.decode(data), decoder.getstate()[0]


class Detokenizer:
    """Streams the text: the deltas of `add` and `flush` join to `decode` of all its tokens, special ones left out."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._bytes = TextBytes(token_bytes)
        self._utf8 = _new_utf8_decoder(errors="replace")
        self._is_inside_character = False

    def add(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens; may be empty."""
        data = b"".join(self._bytes.add(token_ids))
        if not self._is_inside_character:
            try:
                return data.decode()  # nearly always: whole characters
            except UnicodeDecodeError:
                pass
        text = self._utf8.decode(data)
        self._is_inside_character = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """The text still held back, when no token will follow. Ends the stream: later tokens start a new one."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._bytes = TextBytes(self._token_bytes)
        self._is_inside_character = False
        return text


class TokenOffsets:
    """Finds where each token begins in that text, in characters. A token may begin within a character that tokens
    before it have begun: then it begins where that character does."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._bytes = TextBytes(token_bytes)
        self._utf8 = _new_utf8_decoder(errors="replace")
        self._num_chars = 0

    def add(self, token_ids: Sequence[int]) -> list[int]:
        """The offset of each; they never fall. A token without text, as a special one, stands where text goes on."""
        return [self._add_one(data) for data in self._bytes.add(token_ids)]

    def _add_one(self, data: bytes) -> int:
        if not data:
            return self._num_chars
        self._num_chars += len(self._utf8.decode(data[:1]))
        is_inside_character = bool(self._utf8.getstate()[0])
        offset = self._num_chars if is_inside_character else self._num_chars - 1
        self._num_chars += len(self._utf8.decode(data[1:]))
        return offset
