from __future__ import annotations

from pilotfish.models.tokens.token_bytes import TokenBytes
from tests.support.byte_tokenizer import (
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    byte_backend,
    byte_tokenizer,
    byte_vocabulary,
    word_tokenizer,
    word_vocabulary,
)


def test_tokens_stand_for_their_bytes() -> None:
    backend = byte_backend()
    token_bytes = TokenBytes.of(backend, range(len(SPECIAL_TOKENS)))
    assert all(token_bytes[token_id] == data for data, token_id in byte_vocabulary().items())
    assert len(byte_vocabulary()) + len(SPECIAL_TOKENS) == backend.get_vocab_size()


def test_the_rows_behind_the_last_token_are_no_text() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.vocab_size == VOCAB_SIZE > tokenizer.encode("a")[0]
    assert tokenizer.decode([VOCAB_SIZE - 1]) == ""


def test_characters_are_cut_and_special_tokens_are_known() -> None:
    vocabulary = byte_vocabulary()
    assert byte_backend().encode("<|im_end|>😀").ids == [2, vocabulary[b"\xf0\x9f"], vocabulary[b"\x98\x80"]]


def test_words_and_what_is_none() -> None:
    tokenizer, vocabulary = word_tokenizer(), word_vocabulary()
    assert tokenizer.token_bytes is None
    token_ids = [vocabulary["▁a"], vocabulary["▁a"], *(vocabulary[bytes([byte])] for byte in "😀".encode()), 0]
    assert tokenizer.decode(token_ids) == "a a😀"
