import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.lookup.index import continuation_probability


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 40))
def test_chances_grow_with_the_match_and_with_the_share(count: int, others: int, num_matched: int) -> None:
    chance = continuation_probability(count, count + others, num_matched)
    assert 0 < chance < 1
    assert continuation_probability(count, count + others, num_matched + 1) > chance
    assert continuation_probability(count + 1, count + others + 1, num_matched) > chance
    assert continuation_probability(count, count + others + 1, num_matched) < chance


@pytest.mark.parametrize(("num_matched", "measured"), [(2, 0.47), (4, 0.67), (6, 0.76), (9, 0.80)])
def test_a_single_occurrence_is_believed_as_much_as_it_deserves(num_matched: int, measured: float) -> None:
    """Measured on the default target's own answers: docs/proposers.md."""
    assert continuation_probability(1, 1, num_matched) == pytest.approx(measured, abs=0.05)
