"""A request's lists of tokens in the form that a step wants them."""

import pytest

from pilotfish.speculation.sampling.token_lists import TokenLists
from pilotfish.types import SamplingParams


@pytest.mark.parametrize("lengths", [(19, 20, 19), (20, 19, 20), (1, 3, 2)])
def test_a_mask_allows_the_tokens_that_it_is_long_enough_for(lengths: tuple[int, ...]) -> None:
    allowed = (2, 8, 23, 151, 152, 159, 1000)
    lists = TokenLists(SamplingParams(allowed_token_ids=allowed))
    for num_bytes in lengths:
        mask = lists.allowed_mask(num_bytes)
        assert mask is not None
        assert len(mask) == num_bytes
        bits = {8 * index + bit for index, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1}
        assert bits == {token_id for token_id in allowed if token_id < 8 * num_bytes}


def test_a_mask_is_made_once_though_steps_with_and_without_a_grammar_take_turns() -> None:
    lists = TokenLists(SamplingParams(allowed_token_ids=(3, 150)))
    whole_words = lists.allowed_mask(20)
    lists.allowed_mask(19)
    assert lists.allowed_mask(20) is whole_words
