"""Token ids to text while they arrive, for tokenizers whose tokens are bytes: a look-up each. Torch-free."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Protocol

from pilotfish.models.tokens.detokenizer import Decoder, IncrementalDetokenizer

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer(Protocol):
    """Streams the text of one sequence."""

    def add(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens; may be empty."""

    def flush(self) -> str:
        """The text still held back, when no token will follow."""


class ByteDetokenizer:
    """As IncrementalDetokenizer, without decoding anything twice."""

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._utf8 = _new_utf8_decoder(errors="replace")
        self._is_inside_character = False

    def add(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens; may be empty."""
        data = b"".join([self._token_bytes[token_id] for token_id in token_ids])
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
        self._is_inside_character = False
        return text


def detokenizer_of(decoder: Decoder) -> Detokenizer:
    """The cheapest that is exact; special tokens are no text."""
    token_bytes = decoder.token_bytes
    return IncrementalDetokenizer(decoder) if token_bytes is None else ByteDetokenizer(token_bytes)
