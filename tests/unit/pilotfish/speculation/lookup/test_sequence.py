"""Statements about a sequence, indexed bit by bit."""

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.ngram.draft import NgramIndex
from pilotfish.speculation.lookup.sequence import SequenceLookup

tokens = st.lists(st.integers(0, 3), max_size=12)


@given(st.lists(st.tuples(st.integers(0, 20), tokens, st.integers(0, 30))))
def test_statements_in_slices_equal_the_whole(statements: list[tuple[int, list[int], int]]) -> None:
    sequence, truth = SequenceLookup(NgramIndex(2, 3), 0), list[int]()
    for start, token_ids, num_indexed in statements:
        start = min(start, len(truth))
        truth[start:] = token_ids
        sequence.replace_from(start, token_ids)
        sequence.index_some(num_indexed)
        assert sequence.length == len(truth)
    whole = NgramIndex(2, 3)
    whole.append(truth)
    assert sequence.draft(4) == whole.propose(4)
