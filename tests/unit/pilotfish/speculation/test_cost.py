import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.cost import expected_tokens_by_position


def test_expected_tokens_of_the_paper():
    assert expected_tokens_by_position([0.8], 5) == pytest.approx(3.68928)
    assert expected_tokens_by_position([0], 5) == 1
    assert expected_tokens_by_position([1], 5) == 6
    assert expected_tokens_by_position([0.5], 0) == 1


@given(st.floats(0, 0.99), st.integers(0, 12))
def test_equal_positions_give_the_closed_form(rate, num_draft_tokens):
    by_position = expected_tokens_by_position([rate] * 12, num_draft_tokens)
    assert by_position == pytest.approx((1 - rate ** (num_draft_tokens + 1)) / (1 - rate))


def test_positions_multiply_and_the_last_value_holds_beyond_the_end():
    assert expected_tokens_by_position([0.5, 0.4], 3) == pytest.approx(1 + 0.5 + 0.2 + 0.08)
    assert expected_tokens_by_position([], 3) == 1
