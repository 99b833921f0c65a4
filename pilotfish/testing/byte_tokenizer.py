"""A tokenizer of bytes, for tests of text whose characters are cut: every byte is a token, and a few merges straddle
characters. Torch-free."""

from __future__ import annotations

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from pilotfish.models.folder import ModelMetadata
from pilotfish.models.tokenizer import Tokenizer

SPECIAL_TOKENS = ("<|end|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1 and 2; no text of an answer."""

MERGES = ((b"\xf0", b"\x9f"), (b"\x98", b"\x80"), (b"\x80", b"\xf0"), (b"\xe2", b"\x82"), (b"a", b"b"), (b" ", b"a"))
"""Half an emoji, its other half, a tail and the next head, half a euro sign, and plain text."""

VOCAB_SIZE = len(SPECIAL_TOKENS) + 256 + len(MERGES) + 7
"""As models have it, more rows than the tokenizer has tokens."""


def byte_vocabulary() -> dict[bytes, int]:
    """The id of each byte and merge."""
    single = sorted((bytes([byte]) for byte in range(256)), key=_letters)
    tokens = [*single, *(left + right for left, right in MERGES)]
    return {token: len(SPECIAL_TOKENS) + index for index, token in enumerate(tokens)}


def byte_backend() -> tokenizers.Tokenizer:
    """The special tokens and the vocabulary of bytes."""
    vocab = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    vocab.update({_letters(token): token_id for token, token_id in byte_vocabulary().items()})
    merges = [(_letters(left), _letters(right)) for left, right in MERGES]
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return backend


def byte_tokenizer() -> Tokenizer:
    """The same as services hold it, without a chat template."""
    metadata = ModelMetadata(
        model_type="bytes",
        vocab_size=VOCAB_SIZE,
        max_context_tokens=2048,
        eos_token_ids=frozenset({0}),
        is_encoder_decoder=False,
        config={},
    )
    return Tokenizer(byte_backend(), metadata, None, "bytes")


def _letters(data: bytes) -> str:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte if byte in printable else 256 + hidden.index(byte)) for byte in data)
