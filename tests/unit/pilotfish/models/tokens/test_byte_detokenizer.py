from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from pilotfish.models.tokens.byte_detokenizer import ByteDetokenizer, detokenizer_of
from pilotfish.models.tokens.detokenizer import IncrementalDetokenizer
from pilotfish.models.tokens.token_bytes import TokenBytes
from pilotfish.models.tokens.tokenizer import Tokenizer

NUM_TOKENS = 265
SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, write_tiny_model: Callable[[Path], None]) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)
    return Tokenizer.load(folder)


def stream(detokenizer: ByteDetokenizer, token_ids: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """The deltas of token_ids fed in pieces of these sizes (used again and again), and the flush."""
    deltas, start, turn = [], 0, 0
    while start < len(token_ids):
        size = sizes[turn % len(sizes)]
        deltas.append(detokenizer.add(token_ids[start : start + size]))
        start, turn = start + size, turn + 1
    return [*deltas, detokenizer.flush()]


def test_byte_level_tokenizers_get_it(tokenizer: Tokenizer) -> None:
    assert isinstance(detokenizer_of(tokenizer), ByteDetokenizer)


def test_others_do_not(tokenizer: Tokenizer) -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    assert TokenBytes.of(backend, ()) is None
    tokenizer_without = type("Decoder", (), {"token_bytes": None, "special_token_ids": frozenset()})()
    assert isinstance(detokenizer_of(tokenizer_without), IncrementalDetokenizer)


@given(token_ids=st.lists(st.integers(0, NUM_TOKENS + 2), max_size=120), sizes=SIZES)
def test_any_tokens_join_to_their_decoding(tokenizer: Tokenizer, token_ids: list[int], sizes: list[int]) -> None:
    """Broken UTF-8, special tokens and ids that do not exist among them."""
    deltas = stream(ByteDetokenizer(tokenizer.token_bytes), token_ids, sizes)
    assert "".join(deltas) == tokenizer.decode(token_ids)


@given(text=st.text(alphabet=st.sampled_from("ab c\n€ñ😀中"), max_size=40), sizes=SIZES)
def test_no_delta_ends_inside_a_character(tokenizer: Tokenizer, text: str, sizes: list[int]) -> None:
    deltas = stream(ByteDetokenizer(tokenizer.token_bytes), tokenizer.encode(text), sizes)
    assert "".join(deltas[:-1]) == text
    assert "\ufffd" not in "".join(deltas)


def test_flush_gives_what_was_held_back_and_starts_anew(tokenizer: Tokenizer) -> None:
    detokenizer = ByteDetokenizer(tokenizer.token_bytes)
    assert detokenizer.add(tokenizer.encode("a€")[:-1]) == "a"
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.add(tokenizer.encode("b")) == "b"


def test_added_tokens_are_written_as_they_are() -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"Ġa": 0}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["<tool call>"])
    backend.add_special_tokens(["<end>"])
    token_bytes = TokenBytes.of(backend, {2})
    assert [token_bytes[token_id] for token_id in range(4)] == [b" a", b"<tool call>", b"", b""]
    assert ByteDetokenizer(token_bytes).add([0, 1, 2]) == backend.decode([0, 1, 2], skip_special_tokens=True)
