"""What is put together of one sequence's pieces."""

import pytest

from pilotfish.engine.learning.recording import MAX_TEXT_TOKENS, Recording
from pilotfish.features import Features
from pilotfish.messages import OpenSequence
from pilotfish.types import SamplingParams

NUM_PROMPT = 4
WIDTH = 3
"""Bytes of a token's features: of position p all are p."""


def recording(num_prompt: int = NUM_PROMPT) -> Recording:
    return Recording(OpenSequence(1, tuple(range(num_prompt)), SamplingParams(), learn_as="mine"))


def add(to: Recording, first: int, end: int, *, plus: int = 0, width: int = WIDTH) -> None:
    """Positions first to end, whose tokens are their numbers, and `plus` more."""
    data = b"".join(bytes([position % 256]) * width for position in range(first, end))
    to.add([position + plus for position in range(first, end)], Features(first, end - first, data))


def test_pieces_that_follow_each_other_are_one_text() -> None:
    mine = recording()
    for first, end in [(0, 3), (3, 4), (4, 9)]:
        add(mine, first, end)
    text = mine.text(7.0)
    assert text is not None
    assert (text.request_id, text.prompt_len, text.finished_at) == ("mine", NUM_PROMPT, 7.0)
    assert text.token_ids == tuple(range(9))
    assert text.features == Features(0, 9, b"".join(bytes([position]) * WIDTH for position in range(9)))


@pytest.mark.parametrize(
    ("pieces", "first", "end", "prompt_len"),
    [
        ([(0, 9), (12, 15)], 0, 9, 4),  # begins anew behind a gap, and the longest part counts
        ([(0, 6), (9, 19)], 9, 19, 0),
        ([(2, 9)], 2, 9, 2),  # the beginning was found in a cache
        ([(6, 9), (0, 8)], 0, 8, 4),  # computed anew, after its blocks were taken
    ],
)
def test_a_text_has_no_gaps(pieces: list[tuple[int, int]], first: int, end: int, prompt_len: int) -> None:
    mine = recording()
    for piece in pieces:
        add(mine, *piece)
    text = mine.text(0.0)
    assert text is not None
    assert text.token_ids == tuple(range(first, end))
    assert (text.features.first_position, text.features.num_tokens) == (first, end - first)
    assert text.prompt_len == prompt_len


def test_what_is_replaced_is_not_kept() -> None:
    mine = recording()
    add(mine, 0, 9)
    add(mine, 6, 8, plus=100)
    text = mine.text(0.0)
    assert text is not None
    assert text.token_ids == (0, 1, 2, 3, 4, 5, 106, 107)
    assert text.features.num_tokens == 8


def test_features_of_another_form_do_not_continue_it() -> None:
    mine = recording()
    add(mine, 0, 9)
    add(mine, 9, 12, width=6)
    text = mine.text(0.0)
    assert text is not None
    assert text.token_ids == tuple(range(9))


def test_of_a_long_text_the_newest_tokens_are_kept() -> None:
    mine = recording()
    end = 3 * MAX_TEXT_TOKENS
    for first in range(0, end, 100):
        add(mine, first, min(first + 100, end))
        assert mine.num_bytes <= WIDTH * 2 * MAX_TEXT_TOKENS
    text = mine.text(0.0)
    assert text is not None
    assert text.token_ids == tuple(range(end - MAX_TEXT_TOKENS, end))
    assert text.features.first_position == end - MAX_TEXT_TOKENS
    assert len(text.features.data) == WIDTH * MAX_TEXT_TOKENS
    assert text.prompt_len == 0


def test_a_prompt_alone_is_nothing_to_learn_from() -> None:
    mine = recording()
    assert mine.text(0.0) is None
    add(mine, 0, NUM_PROMPT + 1)
    assert mine.text(0.0) is None


def test_equal_prompts_have_one_digest_wherever_the_text_begins() -> None:
    digests = []
    for num_prompt, first in [(40, 0), (40, 30), (41, 0)]:
        mine = recording(num_prompt)
        add(mine, first, 50)
        text = mine.text(0.0)
        assert text is not None
        digests.append(text.prompt)
    assert digests[0] == digests[1] != digests[2]
