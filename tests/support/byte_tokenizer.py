"""Tokenizers for tests of text whose characters are cut. Torch-free.

One whose tokens are bytes, each a token, with a few merges that straddle characters; and one of words as SentencePiece
makes them, with a byte each for what is no word. Both have special tokens, and more ids than tokens.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from pilotfish.models.store.folder import ModelMetadata
from pilotfish.models.tokens.tokenizer import Tokenizer

SPECIAL_TOKENS = ("<|end|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1 and 2; no text of an answer."""

MERGES = ((b"\xf0", b"\x9f"), (b"\x98", b"\x80"), (b"\x80", b"\xf0"), (b"\xe2", b"\x82"), (b"a", b"b"), (b" ", b"a"))
"""Half an emoji, its other half, a tail and the next head, half a euro sign, and plain text."""

VOCAB_SIZE = len(SPECIAL_TOKENS) + 256 + len(MERGES) + 7
"""As models have it, more rows than the tokenizer has tokens."""

WORDS = ("▁", "▁a", "a", "b", "中")
"""Of the tokenizer of words; `▁` is a space."""


def byte_vocabulary(further: Sequence[bytes] = ()) -> dict[bytes, int]:
    """The id of each byte and merge. further: tokens that a model may say, but no text is ever encoded to."""
    single = sorted((bytes([byte]) for byte in range(256)), key=_letters)
    tokens = dict.fromkeys([*single, *(left + right for left, right in MERGES), *further])
    return {token: len(SPECIAL_TOKENS) + index for index, token in enumerate(tokens)}


def byte_backend(further: Sequence[bytes] = ()) -> tokenizers.Tokenizer:
    """The special tokens and the vocabulary of bytes."""
    vocab = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    vocab.update({_letters(token): token_id for token, token_id in byte_vocabulary(further).items()})
    merges = [(_letters(left), _letters(right)) for left, right in MERGES]
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return backend


def byte_tokenizer(further: Sequence[bytes] = ()) -> Tokenizer:
    """The same as services hold it, without a chat template."""
    return _held(byte_backend(further))


def word_vocabulary() -> dict[str | bytes, int]:
    """The id of each word, and of each byte."""
    tokens: list[str | bytes] = [*WORDS, *(bytes([byte]) for byte in range(256))]
    return {token: len(SPECIAL_TOKENS) + index for index, token in enumerate(tokens)}


def word_tokenizer() -> Tokenizer:
    """A decoder as Llama 2 has it: bytes where there is no word, and the space before the first word is taken off."""
    vocab = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    for token, token_id in word_vocabulary().items():
        vocab[token if isinstance(token, str) else f"<0x{token[0]:02X}>"] = token_id
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return _held(backend)


def save_lookup_folder(folder: Path, vocab_size: int = 50) -> None:
    """A model's folder as far as lookups need one: tokens t0, t1 and so on, and no weights."""
    vocabulary = {f"t{token_id}": token_id for token_id in range(vocab_size)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"model_type": "llama", "vocab_size": vocab_size, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()


def _held(backend: tokenizers.Tokenizer) -> Tokenizer:
    metadata = ModelMetadata(
        model_type="none",
        vocab_size=max(VOCAB_SIZE, backend.get_vocab_size() + 7),
        max_context_tokens=2048,
        eos_token_ids=frozenset({0}),
        config={},
    )
    return Tokenizer(backend, metadata, None, "none", Path())


def _letters(data: bytes) -> str:
    """GPT-2's printable stand-in for each byte."""
    return "".join(map(_LETTERS.__getitem__, data))


_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]
_LETTERS = [chr(byte if byte in _PRINTABLE else 256 + _HIDDEN.index(byte)) for byte in range(256)]
