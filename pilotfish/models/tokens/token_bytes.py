"""The bytes that each token of a tokenizer stands for. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import tokenizers
from tokenizers import decoders

REPLACEMENT = "\ufffd"
"""What a decoder shows for bytes that are no character, or none yet."""
_BYTE_TOKEN = re.compile(r"<0x(?P<byte>[0-9A-Fa-f]{2})>")
"""What tokenizers that fall back on bytes (SentencePiece's) call one that is no character."""


class TokenBytes(dict[int, bytes]):
    """Token id -> what it adds to a text behind other tokens: nothing for those that are skipped or do not exist.

    Filled as it is asked, so that a vocabulary of 150,000 tokens costs nothing at the start. Threads may share it:
    whoever is second computes the same again.
    """

    def __init__(self, backend: tokenizers.Tokenizer, skipped_ids: Collection[int]) -> None:
        super().__init__()
        self._backend = backend
        self._skipped_ids = skipped_ids
        self.is_byte_level = isinstance(backend.decoder, decoders.ByteLevel)
        """Whether each letter of a token is a byte, as GPT-2 has it: SmolLM, Llama 3, Qwen. Others are decoded."""
        self._alphabet = {letter: value for value, letter in enumerate(_byte_letters())}

    def __missing__(self, token_id: int) -> bytes:
        token = None if token_id in self._skipped_ids else self._backend.id_to_token(token_id)
        if token is None:
            result = b""
        elif not self.is_byte_level:
            # Behind itself: some decoders take a space off a text's first token.
            result = self._shown(token, self._decode([token_id, token_id])[len(self._decode([token_id])) :])
        elif all(letter in self._alphabet for letter in token):
            result = bytes(self._alphabet[letter] for letter in token)
        else:
            result = token.encode()  # an added token, written as it is
        self[token_id] = result
        return result

    def is_fallback(self, token_id: int) -> bool:
        """Whether the tokenizer writes it for one byte of characters that it does not know."""
        token = None if self.is_byte_level else self._backend.id_to_token(token_id)
        return token is not None and _BYTE_TOKEN.fullmatch(token) is not None

    def at_start(self, token_id: int) -> bytes:
        """The bytes of a text's first token."""
        return self._shown(self._backend.id_to_token(token_id), self._decode([token_id]))

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._backend.decode(token_ids, skip_special_tokens=False))

    @staticmethod
    def _shown(token: str | None, text: str) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(token or "") if text == REPLACEMENT else None
        return bytes.fromhex(byte["byte"]) if byte else text.encode()


class TextBytes:
    """The bytes of one text's tokens as they come."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._has_begun = token_bytes.is_byte_level

    def add(self, token_ids: Sequence[int]) -> list[bytes]:
        """The bytes of each token; the first that has any is the text's first."""
        pieces = [self._token_bytes[token_id] for token_id in token_ids]
        if not self._has_begun:
            first = next((index for index, piece in enumerate(pieces) if piece), None)
            if first is not None:
                self._has_begun = True
                pieces[first] = self._token_bytes.at_start(token_ids[first])
        return pieces


def _byte_letters() -> list[str]:
    """The letter that stands for each byte: itself where it can be seen, else the next from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(value if value in visible else next(hidden)) for value in range(256)]
