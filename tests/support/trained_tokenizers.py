"""Tokenizers of the field's kinds, trained on a few sentences. Torch-free."""

import json
import random
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from pilotfish.models.store.folder import ModelMetadata
from pilotfish.models.tokens.tokenizer import Tokenizer

Kind = Literal["byte_bpe", "sentencepiece", "wordpiece", "bytes"]
KINDS: tuple[Kind, ...] = ("byte_bpe", "sentencepiece", "wordpiece", "bytes")
SPECIAL_TOKENS = ("<s>", "</s>", "<|turn|>")
"""Ids 0, 1 and 2 in each; 1 ends an answer."""

TEXT = """The quick brown fox jumps over the lazy dog, and then it sleeps. What does the fox say? Nothing: it's asleep!
def add(first, second):
    return first + second  # 12 + 345 = 357
Der schnelle braune Fuchs springt über den faulen Hund; danach schläft er.
狐狸跳过了懒狗。 สุนัขจิ้งจอกกระโดดข้ามสุนัขขี้เกียจ 😀 👩‍👩‍👧
"""
PIECES = (
    *TEXT.split(" "),
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    " the",
    " fox",
    "'s",
    "123",
    "7",
    "😀",
    "é",
    "e\u0301",
    "\ufffd",
)
"""What random texts are made of, beside the special tokens as text."""


def backend(kind: Kind, vocab_size: int = 400) -> tokenizers.Tokenizer:
    """Byte-level BPE as GPT-2 has it; BPE over words with byte fallback as Llama 2 has it; whole words, and their parts
    behind `##`, as BERT has it; or bytes alone."""
    specials = list(SPECIAL_TOKENS)
    if kind == "sentencepiece":
        made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token=None))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        made.decoder = decoders.Sequence(steps)
        fallback = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=vocab_size + 300, special_tokens=[*specials, *fallback])
        made.train_from_iterator(TEXT.split("\n"), trainer)
        state = json.loads(made.to_str())
        # As there, tokens of one byte are in the vocabulary, and not special.
        state["added_tokens"] = [each for each in state["added_tokens"] if each["content"] in specials]
        return tokenizers.Tokenizer.from_str(json.dumps(state))
    if kind == "wordpiece":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<s>"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        made.decoder = decoders.WordPiece()
        made.train_from_iterator([TEXT], trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=specials))
        return made
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = 256 + len(specials) if kind == "bytes" else vocab_size
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet)
    made.train_from_iterator([TEXT], trainer)
    return made


def trained_tokenizer(kind: Kind, vocab_size: int = 400) -> Tokenizer:
    """The same as services hold it, without a chat template."""
    made = backend(kind, vocab_size)
    metadata = ModelMetadata(
        model_type="none",
        vocab_size=made.get_vocab_size(),
        max_context_tokens=4096,
        eos_token_ids=frozenset({1}),
        config={},
    )
    return Tokenizer(made, metadata, None, kind, Path())


def random_text(numbers: random.Random, num_pieces: int) -> str:
    return "".join(numbers.choices((*PIECES, *SPECIAL_TOKENS), k=num_pieces))
