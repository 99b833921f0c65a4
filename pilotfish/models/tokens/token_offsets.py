"""Where each token of an answer begins in its text, in characters. Torch-free.

A token may begin within a character that tokens before it have begun: then it begins where that character does.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Protocol

from pilotfish.models.tokens.detokenizer import REPLACEMENT, Decoder, IncrementalDetokenizer

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class TokenOffsets(Protocol):
    """Of one sequence whose text is what a Detokenizer makes of its tokens."""

    def add(self, token_ids: Sequence[int]) -> list[int]:
        """The offset of each; they never fall. A token without text, as a special one, stands where text goes on."""


class ByteTokenOffsets:
    """For tokenizers whose tokens are bytes: exact."""

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._utf8 = _new_utf8_decoder(errors="replace")
        self._num_chars = 0

    def add(self, token_ids: Sequence[int]) -> list[int]:
        return [self._add_one(self._token_bytes[token_id]) for token_id in token_ids]

    def _add_one(self, data: bytes) -> int:
        if not data:
            return self._num_chars
        self._num_chars += len(self._utf8.decode(data[:1]))
        is_inside_character = bool(self._utf8.getstate()[0])
        offset = self._num_chars if is_inside_character else self._num_chars - 1
        self._num_chars += len(self._utf8.decode(data[1:]))
        return offset


class DecodedTokenOffsets:
    """For other tokenizers: from what decoding adds. Tokens of a character that is never completed point at its
    beginning, although each may show as a character of its own."""

    def __init__(self, decoder: Decoder) -> None:
        self._detokenizer = IncrementalDetokenizer(decoder)
        self._num_chars = 0

    def add(self, token_ids: Sequence[int]) -> list[int]:
        return [self._add_one(token_id) for token_id in token_ids]

    def _add_one(self, token_id: int) -> int:
        start, num_held_chars = self._num_chars, self._detokenizer.num_held_chars
        text = self._detokenizer.add((token_id,))
        self._num_chars += len(text)
        # What was held back and comes out as it was is not of this token, which did not complete it.
        return start + min(num_held_chars, len(text) - len(text.lstrip(REPLACEMENT)))


def token_offsets_of(decoder: Decoder) -> TokenOffsets:
    """Those that suit the tokenizer."""
    token_bytes = decoder.token_bytes
    return DecodedTokenOffsets(decoder) if token_bytes is None else ByteTokenOffsets(token_bytes)
