"""A text is refused only where it cannot have so few tokens."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from pilotfish.models.tokens.token_length import TextLimit

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level(letters: list[str] = LETTERS, *, normalizer=None) -> tokenizers.Tokenizer:
    """Each byte is a token, and so are two spaces."""
    tokens = [*letters, "ĠĠ"] if "Ġ" in letters else letters
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("Ġ", "Ġ")] if "Ġ" in letters else []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    return backend


def byte_fallback(normalizer=None) -> tokenizers.Tokenizer:
    """As SentencePiece has it."""
    vocab = {token: index for index, token in enumerate([*(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a"])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    backend.normalizer = normalizer or normalizers.Replace(" ", "▁")
    return backend


def swallowing() -> tokenizers.Tokenizer:
    backend = byte_level()
    backend.add_special_tokens([AddedToken("<|x|>", rstrip=True)])
    return backend


def words() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (byte_level(), " " * 4000),
        (byte_level(), "é😀中" * 500),
        (byte_level(normalizer=normalizers.NFKC()), "\U0001d414\u0308\u0301" * 500),
        (byte_level(normalizer=normalizers.Sequence([normalizers.NFC()])), "\u1100\u1161\u11a8" * 500),
        (byte_level(normalizer=normalizers.Replace(Regex("a+"), "a")), "a" * 4000),
        (byte_level(normalizer=normalizers.Replace("aa", "a")), "a" * 4000),
        (byte_level(normalizer=normalizers.Strip()), " " * 4000 + "a"),
        (byte_level(["a"]), "é" * 4000 + "a"),
        (byte_level(["a"], normalizer=normalizers.NFC()), "e\u0301" * 4000),
        (byte_fallback(), " é" * 500),
        (byte_fallback(normalizers.Sequence([normalizers.Replace(" ", "")])), " " * 4000 + "a"),
        (swallowing(), "<|x|>" + " " * 4000),
        (swallowing(), "<|x|>" * 500),
        (words(), "x" * 4000 + " " * 4000),
    ],
)
def test_a_text_that_fits_is_allowed(backend: tokenizers.Tokenizer, text: str) -> None:
    assert TextLimit(backend).allows(text, len(backend.encode(text).ids))


@pytest.mark.parametrize(
    ("backend", "text", "num_bytes"),
    [
        (byte_level(), "7", 2),
        (byte_level(), "é", 2),
        (byte_level([letter for letter in LETTERS if letter != "b"]), "b7", 4),
        (byte_level(normalizer=normalizers.NFC()), "7", 8),
        (byte_fallback(), "7", 6),
        (swallowing(), "7", 5),
    ],
)
def test_a_text_that_cannot_fit_is_not(backend: tokenizers.Tokenizer, text: str, num_bytes: int) -> None:
    text *= 100 * num_bytes // len(text.encode())
    limit = TextLimit(backend)
    assert limit.allows(text, 100)
    assert not limit.allows(text + "7", 100)
