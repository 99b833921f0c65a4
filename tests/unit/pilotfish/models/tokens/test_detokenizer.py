from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from pilotfish.models.tokens.detokenizer import Detokenizer, whole_characters
from pilotfish.models.tokens.token_bytes import TokenBytes
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.byte_tokenizer import VOCAB_SIZE, word_tokenizer, word_vocabulary

NUM_TOKENS = 265
TEXTS = st.text(alphabet=st.sampled_from("ab c\n€ñ😀👩‍🔬中\u200d"), max_size=40)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, write_tiny_model: Callable[[Path], None]) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)
    return Tokenizer.load(folder)


def stream(detokenizer: Detokenizer, token_ids: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """The deltas of token_ids fed in pieces of these sizes (used again and again), and the flush."""
    deltas, start, turn = [], 0, 0
    while start < len(token_ids):
        size = sizes[turn % len(sizes)]
        deltas.append(detokenizer.add(token_ids[start : start + size]))
        start, turn = start + size, turn + 1
    return [*deltas, detokenizer.flush()]


SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@given(text=TEXTS, sizes=SIZES)
def test_text_joins_and_no_delta_ends_inside_a_character(tokenizer: Tokenizer, text: str, sizes: list[int]) -> None:
    deltas = stream(Detokenizer(tokenizer.token_bytes), tokenizer.encode(text), sizes)
    assert "".join(deltas) == text
    assert "\ufffd" not in "".join(deltas)
    assert deltas[-1] == ""


@given(token_ids=st.lists(st.integers(0, NUM_TOKENS + 2), max_size=120), sizes=SIZES)
def test_any_tokens_join_to_their_decoding(tokenizer: Tokenizer, token_ids: list[int], sizes: list[int]) -> None:
    """Broken UTF-8, special tokens and ids that do not exist among them."""
    assert "".join(stream(Detokenizer(tokenizer.token_bytes), token_ids, sizes)) == tokenizer.decode(token_ids)


def test_a_character_waits_for_its_last_byte_or_the_end(tokenizer: Tokenizer) -> None:
    detokenizer, euro = Detokenizer(tokenizer.token_bytes), tokenizer.encode("€")
    assert [detokenizer.add([token_id]) for token_id in euro] == ["", "€"]
    assert detokenizer.add([*tokenizer.encode("a"), euro[0]]) == "a"
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.add(tokenizer.encode("b")) == "b"


def test_added_tokens_are_written_as_they_are() -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"Ġa": 0}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["<tool call>"])
    backend.add_special_tokens(["<end>"])
    token_bytes = TokenBytes(backend, {2})
    assert [token_bytes[token_id] for token_id in range(4)] == [b" a", b"<tool call>", b"", b""]
    assert Detokenizer(token_bytes).add([0, 1, 2]) == backend.decode([0, 1, 2], skip_special_tokens=True)


EMOJI_CHAIN = [b"\xf0", *([b"\x9f", b"\x98", b"\x80\xf0"] * 150)]
"""Valid emoji whose last byte always comes in one token with the next one's first: no token ends a character."""


@pytest.mark.parametrize(
    "tokens",
    [
        [b" a", b"b", b"c"] * 150,
        [b"\xf0\x9f", b"\x98\x80"] * 150,
        EMOJI_CHAIN,
        [*EMOJI_CHAIN, b"a", *EMOJI_CHAIN],
        [b"\x80"] * 300,
        [b"\xf0"] * 300,
        [b"\xe2\x82"] * 300,
        [b"\xe2\x82", b"\x80\xf0", b"\x9f"] * 100,
        [b"a", *([b"\xf0\x9f"] * 40), b"\x98\x80", b"b"],
    ],
)
def test_long_runs_are_right(tokenizer: Tokenizer, token_of: Callable[[bytes], int], tokens: list[bytes]) -> None:
    token_ids = [token_of(token) for token in tokens]
    deltas = stream(Detokenizer(tokenizer.token_bytes), token_ids, [1])
    assert "".join(deltas) == tokenizer.decode(token_ids)


def test_emoji_chain_streams(tokenizer: Tokenizer, token_of: Callable[[bytes], int]) -> None:
    detokenizer = Detokenizer(tokenizer.token_bytes)
    deltas = [detokenizer.add([token_of(token)]) for token in EMOJI_CHAIN]
    assert deltas == ["", *(["", "", "😀"] * 150)]


WORDS = word_vocabulary()
UNITS = st.sampled_from(
    [
        [0],
        [VOCAB_SIZE - 1],
        *([WORDS[word]] for word in ("▁", "▁a", "b", "中")),
        *([WORDS[bytes([byte])] for byte in text.encode()] for text in "😀€ñ"),
    ]
)


@given(units=st.lists(UNITS, max_size=60), sizes=SIZES)
def test_sentencepiece_spaces_and_byte_fallback(units: list[list[int]], sizes: list[int]) -> None:
    decoder = word_tokenizer()
    token_ids = [token_id for unit in units for token_id in unit]
    deltas = stream(Detokenizer(decoder.token_bytes), token_ids, sizes)
    assert "".join(deltas) == decoder.decode(token_ids)


def test_ids_without_a_token_are_as_if_they_were_not_there() -> None:
    """As models have them: their vocabulary is wider than the tokenizer's."""
    decoder, none = word_tokenizer(), VOCAB_SIZE - 1
    a, space, emoji = WORDS["a"], WORDS["▁"], [WORDS[bytes([byte])] for byte in "😀".encode()]
    for token_ids in (
        [a, none, space, a],
        [none, a, none, none, space],
        [a, *[part for byte in emoji for part in (none, byte)]],
    ):
        deltas = stream(Detokenizer(decoder.token_bytes), token_ids, [1])
        assert "".join(deltas) == decoder.decode(token_ids)


def test_whole_characters_leave_what_may_begin_another() -> None:
    assert whole_characters("né😀".encode()) == ("né😀", b"")
    assert whole_characters("é😀".encode()[:-1]) == ("é", "😀".encode()[:-1])
    assert whole_characters(b"\x98\x80a") == ("\ufffd\ufffda", b"")
