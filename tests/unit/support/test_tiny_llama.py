"""The small model that tests compute with."""

from __future__ import annotations

from pathlib import Path

import torch

from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama


def test_a_seed_gives_the_same_model_again() -> None:
    token_ids = torch.tensor([[1, 2, 3]])
    first, again, other = (tiny_llama(seed)(token_ids).logits for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_sizes_can_be_chosen() -> None:
    assert tiny_llama(vocab_size=7, num_hidden_layers=1)(torch.tensor([[1]])).logits.shape == (1, 1, 7)


def test_each_printable_character_is_a_token(tmp_path: Path) -> None:
    tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE).save_pretrained(tmp_path)
    save_printable_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    text = "The small fish, {swims}~"
    token_ids = tokenizer.encode(text)
    assert len(token_ids) == len(text)
    assert max(token_ids) < PRINTABLE_VOCAB_SIZE
    assert tokenizer.decode(token_ids) == text
