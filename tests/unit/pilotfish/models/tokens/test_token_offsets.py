"""Offsets point into the text that the tokens make, however its characters are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.models.tokens.detokenizer import TokenOffsets
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.byte_tokenizer import VOCAB_SIZE, byte_tokenizer, byte_vocabulary, word_tokenizer, word_vocabulary

TOKENS = byte_vocabulary()
WORDS = word_vocabulary()
TEXTS = st.text(alphabet=st.sampled_from("ab c\n€ñ😀👩‍🔬中\ufffd"), max_size=30)


@pytest.fixture(scope="module")
def decoder() -> Tokenizer:
    return byte_tokenizer()


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    return word_tokenizer()


def begins(text: str, position: int) -> int:
    """The character that the byte at this position belongs to."""
    ends = itertools.accumulate(len(character.encode()) for character in text)
    return next((index for index, end in enumerate(ends) if position < end), len(text))


@given(text=TEXTS, data=st.data())
def test_each_token_begins_where_its_first_byte_is(decoder: Tokenizer, text: str, data: st.DataObject) -> None:
    encoded, token_ids, positions = text.encode(), [], []
    position = 0
    while position < len(encoded):
        is_merge = data.draw(st.booleans()) and encoded[position : position + 2] in TOKENS
        size = 2 if is_merge else 1
        token_ids.append(TOKENS[encoded[position : position + size]])
        positions.append(position)
        position += size
        if data.draw(st.integers(0, 9)) == 0:
            token_ids.append(0)
            positions.append(position)
    assert TokenOffsets(decoder.token_bytes).add(token_ids) == [begins(text, position) for position in positions]


@given(token_ids=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=60), sizes=st.lists(st.integers(1, 7), min_size=1))
def test_any_tokens_point_into_their_text(decoder: Tokenizer, token_ids: list[int], sizes: list[int]) -> None:
    """Broken UTF-8, special tokens and ids that do not exist among them; in pieces of any size."""
    text, offsets = decoder.decode(token_ids), TokenOffsets(decoder.token_bytes)
    told: list[int] = []
    for size in itertools.cycle(sizes):
        if len(told) == len(token_ids):
            break
        told += offsets.add(token_ids[len(told) : len(told) + size])
    assert told == sorted(told)
    for token_id, offset in zip(token_ids, told, strict=True):
        shown = decoder.decode([token_id])
        assert 0 <= offset <= len(text)
        assert "\ufffd" in shown or text.startswith(shown, offset)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([b"a", b"\xf0\x9f", b"\x98\x80", b"b"], [0, 1, 1, 2]),
        ([b"\xf0\x9f", b"\x98", b"\x80\xf0", b"\x9f", b"\x98\x80", b" a"], [0, 0, 0, 1, 1, 2]),
        ([b"\xf0\x9f", b"a"], [0, 1]),
        ([b"\xf0\x9f", b"\xf0\x9f", b"\x98\x80"], [0, 1, 1]),
        ([b"\x80", b"\x80", b"a"], [0, 1, 2]),
        ([b"\xe2\x82", b"\xf0\x9f"], [0, 1]),
    ],
)
def test_of_bytes(decoder: Tokenizer, tokens: list[bytes], expected: list[int]) -> None:
    assert TokenOffsets(decoder.token_bytes).add([TOKENS[token] for token in tokens]) == expected


@given(token_ids=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=60))
def test_any_pieces_point_into_their_text(pieces: Tokenizer, token_ids: list[int]) -> None:
    told = TokenOffsets(pieces.token_bytes).add(token_ids)
    assert told == sorted(told)
    assert all(0 <= offset <= len(pieces.decode(token_ids)) for offset in told)
