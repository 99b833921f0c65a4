"""The bytes that each token of a byte-level tokenizer stands for (GPT-2's scheme: SmolLM, Llama 3, Qwen, ...)."""

from __future__ import annotations

from collections.abc import Collection

import tokenizers
from tokenizers import decoders


class TokenBytes(dict[int, bytes]):
    """Token id -> its bytes: none for tokens that are skipped and for ids that do not exist.

    Filled as it is asked, so that a vocabulary of 150,000 tokens costs nothing at the start. Threads may share it:
    whoever is second computes the same again.
    """

    def __init__(self, backend: tokenizers.Tokenizer, skipped_ids: Collection[int]) -> None:
        super().__init__()
        self._backend = backend
        self._skipped_ids = skipped_ids
        self._alphabet = {letter: value for value, letter in enumerate(byte_letters())}

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, skipped_ids: Collection[int]) -> TokenBytes | None:
        """None for a tokenizer whose tokens do more than stand for bytes."""
        return cls(backend, skipped_ids) if isinstance(backend.decoder, decoders.ByteLevel) else None

    def __missing__(self, token_id: int) -> bytes:
        token = None if token_id in self._skipped_ids else self._backend.id_to_token(token_id)
        if token is None:
            result = b""
        elif all(letter in self._alphabet for letter in token):
            result = bytes(self._alphabet[letter] for letter in token)
        else:
            result = token.encode()  # an added token, written as it is
        self[token_id] = result
        return result


def byte_letters() -> list[str]:
    """The letter that stands for each byte: itself where it can be seen, else the next from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(value if value in visible else next(hidden)) for value in range(256)]
