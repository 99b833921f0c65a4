from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.cost import best_gain, expected_tokens, expected_tokens_by_position, speedup


def test_expected_tokens_of_the_paper():
    assert expected_tokens(0.8, 5) == pytest.approx(3.68928)
    assert expected_tokens(0, 5) == 1
    assert expected_tokens(1, 5) == 6
    assert expected_tokens(0.5, 0) == 1


@given(st.floats(0, 0.99), st.integers(0, 12))
def test_equal_positions_give_the_closed_form(rate, num_draft_tokens):
    by_position = expected_tokens_by_position([rate] * 12, num_draft_tokens)
    assert by_position == pytest.approx(expected_tokens(rate, num_draft_tokens))


def test_positions_multiply_and_the_last_value_holds_beyond_the_end():
    assert expected_tokens_by_position([0.5, 0.4], 3) == pytest.approx(1 + 0.5 + 0.2 + 0.08)
    assert expected_tokens_by_position([], 3) == 1


def test_speedup_of_the_articles_table():
    """A 70B target that verifies in 8 ms and drafts in 0.5 ms a token: acceptance 0.8 gives 2.8x at K = 5."""
    assert speedup(0.8, 5, 0.5 / 8) == pytest.approx(2.81, abs=0.01)


def best(acceptance, draft_ms=0.5, verify_ms=8.0):
    rounds_ms = [8.0, *(verify_ms + k * draft_ms for k in range(1, 9))]
    return best_gain(acceptance, rounds_ms[0], rounds_ms)


def test_best_k_grows_with_acceptance_and_falls_with_cost():
    assert best([0.3] * 8)[0] < best([0.8] * 8)[0] <= best([0.99] * 8)[0]
    assert best([0.8] * 8, draft_ms=4)[0] < best([0.8] * 8)[0]


def test_the_gain_tells_where_speculation_does_not_pay():
    assert best([0.02] * 8)[1] < 1
    assert best([0.9] * 8, draft_ms=20)[1] < 1
    assert best([]) == (0, 1.0)


def test_the_smallest_of_equals_wins():
    assert best([1.0, 0.0], draft_ms=0)[0] == 1


def test_best_gain_is_expected_tokens_over_time():
    assert best_gain([0.5, 0.5], 1.0, [1.0, 1.0, 1.0]) == (2, 1.75)
    assert best_gain([0.5, 0.5], 1.0, [1.0, 1.0, 2.0]) == (1, 1.5)
    assert best_gain([], 1.0, [1.0]) == (0, 1.0)
