from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.ngram.draft import NgramIndex

TOKENS = st.lists(st.integers(0, 3), max_size=40)


def indexed(token_ids: list[int], smallest: int = 2, largest: int = 4) -> NgramIndex:
    index = NgramIndex(smallest, largest)
    index.append(token_ids)
    return index


def rescanned(token_ids: list[int], k: int, smallest: int, largest: int) -> tuple[int, ...]:
    """The definition, by brute force."""
    for size in range(min(largest, len(token_ids)), smallest - 1, -1):
        end = token_ids[len(token_ids) - size :]
        for start in range(len(token_ids) - size - 1, -1, -1):
            if token_ids[start : start + size] == end:
                grown = list(token_ids)
                for offset in range(k):
                    grown.append(grown[start + size + offset])
                return tuple(grown[len(token_ids) :])
    return ()


@given(TOKENS, st.integers(0, 6), st.integers(1, 3), st.integers(0, 2))
def test_equals_a_rescan(token_ids: list[int], k: int, smallest: int, extra: int) -> None:
    index = indexed(token_ids, smallest, smallest + extra)
    assert index.propose(k).token_ids == rescanned(token_ids, k, smallest, smallest + extra)


def test_the_more_tokens_match_the_surer_it_is() -> None:
    expected = [
        indexed([1, 2, 3, 4, 5, 6, 7, 0, *before, 3, 4, 5, 6]).propose(4).expected_accepted_tokens
        for before in ((8, 8), (8, 2), (1, 2))
    ]
    assert sorted(set(expected)) == expected
