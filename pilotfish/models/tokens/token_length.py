"""How much text a token of a tokenizer can stand for. Torch-free."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import decoders, models

from pilotfish.models.tokens.token_bytes import byte_letters

_COMPOSING = frozenset(("NFC", "NFKC", "NFD", "NFKD"))
_COMPOSED_BYTES = 4
"""Unicode's normal forms make at most this many bytes one: of a mathematical letter NFKC leaves the letter."""
_NEVER_IN_TEXT = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))
"""Bytes that UTF-8 does not have."""
_KEEPING = _COMPOSING | frozenset(("Sequence", "Prepend", "Replace", "ByteLevel", "Split", "Digits", "Metaspace"))
"""Steps before the vocabulary that take no text away, with what `_takes_away` says of some."""


class TextLimit:
    """The longest text of so many tokens, as a bound that is safe and far from tight."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        """Takes 0.2 s for 50,000 tokens."""
        kinds = _kinds_of_steps(backend)
        self._swallows_space = False
        self._token_bytes: int | None = None
        """Bytes of text that one token stands for at most; None where it may be any number."""
        self._dropped = b""
        """Bytes that the tokenizer has no token for and leaves out."""
        if kinds is None or not isinstance(backend.model, models.BPE):
            return
        vocabulary = backend.get_vocab(with_added_tokens=False)
        if isinstance(backend.decoder, decoders.ByteLevel) and "ByteLevel" in kinds:
            longest = max(map(len, vocabulary), default=0)  # a letter for each byte
            self._dropped = bytes(byte for byte, letter in enumerate(byte_letters()) if letter not in vocabulary)
        elif backend.model.byte_fallback and vocabulary.keys() >= {f"<0x{byte:02X}>" for byte in range(256)}:
            longest = max(len(token.encode()) for token in vocabulary)
        else:
            return
        if kinds & _COMPOSING and not _NEVER_IN_TEXT.issuperset(self._dropped):
            return  # a letter that has a token may become one that has none
        added = backend.get_added_tokens_decoder().values()
        self._swallows_space = any(token.lstrip or token.rstrip for token in added)
        longest = max([longest, *(len(token.content.encode()) for token in added)])
        self._token_bytes = longest * _COMPOSED_BYTES if kinds & _COMPOSING else longest

    def allows(self, text: str, num_tokens: int) -> bool:
        """False: it has more tokens than that, whatever they are. True tells nothing."""
        if self._token_bytes is None:
            return True
        if self._swallows_space:
            text = re.sub(r"\s+", "", text)
        return len(text.encode().translate(None, self._dropped)) <= num_tokens * self._token_bytes


def _kinds_of_steps(backend: tokenizers.Tokenizer) -> set[str] | None:
    """What is done with a text before the vocabulary comes in; None where that may shorten it without bound."""
    waiting = [json.loads(step.__getstate__()) for step in (backend.normalizer, backend.pre_tokenizer) if step]
    kinds = set()
    while waiting:
        step = waiting.pop()
        if step["type"] not in _KEEPING or _takes_away(step):
            return None
        kinds.add(step["type"])
        waiting.extend(step.get("normalizers", step.get("pretokenizers", ())))
    return kinds


def _takes_away(step: Mapping[str, Any]) -> bool:
    if step["type"] == "Replace":
        pattern = step["pattern"].get("String")
        return pattern is None or len(pattern.encode()) > len(step["content"].encode())
    return step.get("behavior") == "Removed"
