"""Tokenizers of the field's kinds, trained on the Python sources that are installed here."""

from __future__ import annotations

import json
import site
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

Kind = Literal["byte_bpe", "sentencepiece", "wordpiece", "bytes"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SIZES: dict[Kind, int] = {"byte_bpe": 128_000, "sentencepiece": 32_000, "wordpiece": 30_000, "bytes": 256}
END, TURN = "<|im_end|>", "<|im_start|>"
SPECIAL_TOKENS = ("<unk>", END, TURN)
_CORPUS_BYTES = 64 << 20


def tokenizer_of(kind: Kind) -> tokenizers.Tokenizer:
    """Byte-level BPE as GPT-2 and Llama 3 have it; BPE with byte fallback as Llama 2 has it; WordPiece as BERT has it;
    bytes alone. A minute on two cores for the largest."""
    specials, size = list(SPECIAL_TOKENS), SIZES[kind]
    if kind == "sentencepiece":
        made = tokenizers.Tokenizer(models.BPE(byte_fallback=True))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        made.decoder = decoders.Sequence(steps)
        specials += [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, limit_alphabet=500)
    elif kind == "wordpiece":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials, limit_alphabet=500)
    else:
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        size = size if kind == "byte_bpe" else len(specials) + len(alphabet)
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet)
    made.train_from_iterator([""] if kind == "bytes" else _corpus(), trainer)
    state = json.loads(made.to_str())
    # Tokens of one byte are in the vocabulary, and not special: text that looks like one is text.
    state["added_tokens"] = [each for each in state["added_tokens"] if each["content"] in SPECIAL_TOKENS]
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def _corpus() -> Iterator[str]:
    """Files of installed packages, in an order that does not change."""
    left = _CORPUS_BYTES
    for folder in site.getsitepackages():
        for path in sorted(Path(folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8", errors="ignore")
            yield text
            left -= len(text)
            if left <= 0:
                return
