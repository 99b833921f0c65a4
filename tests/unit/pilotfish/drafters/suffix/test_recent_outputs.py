from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.suffix.automaton import ROOT, SuffixAutomaton
from pilotfish.drafters.suffix.recent_outputs import MIN_OUTPUT_TOKENS, SEPARATOR, MatchCursor, RecentOutputs


def stored(store: RecentOutputs) -> list[int]:
    return [token_id for automaton in store.generations for token_id in automaton.token_ids]


def test_outputs_are_found_once_they_are_indexed() -> None:
    store = RecentOutputs(100)
    output = list(range(10))
    store.add(output)
    assert len(store) == 0
    store.index_some(4)
    assert stored(store) == output[:4]
    store.index_some(1000)
    assert stored(store) == [*output, SEPARATOR]


@given(st.lists(st.integers(MIN_OUTPUT_TOKENS, 40), max_size=20), st.integers(2, 90))
def test_the_latest_half_of_the_capacity_is_there_and_never_more_than_all(sizes: list[int], capacity: int) -> None:
    store, truth = RecentOutputs(capacity), list[int]()
    for number, size in enumerate(sizes):
        store.add([number] * size)
        # What waits is bounded, too: an output longer than half of the store loses its beginning.
        truth += ([number] * size + [SEPARATOR])[-(capacity // 2) :]
        store.index_some(1000)
        assert len(store) <= capacity
        kept = stored(store)
        assert kept == truth[len(truth) - len(kept) :]
        assert len(kept) >= min(capacity // 2, len(truth))


TOKENS = st.lists(st.integers(0, 2), max_size=30)


@given(TOKENS, st.lists(st.tuples(st.integers(0, 60), TOKENS), max_size=5))
def test_a_cursor_follows_rewinds(text: list[int], statements: list[tuple[int, list[int]]]) -> None:
    automaton, truth = SuffixAutomaton(), list[int]()
    automaton.append(text)
    cursor = MatchCursor(automaton)
    for length, more in statements:
        length = min(length, len(truth))
        truth[length:] = more
        cursor.rewind(length)
        state, num_matched = cursor.follow(truth)
        # After a rewind it looks back only so far; what it says is true, and the whole truth for a new cursor.
        assert num_matched <= MatchCursor(automaton).follow(truth)[1]
        assert state == _state_of(automaton, truth[len(truth) - num_matched :])


def _state_of(automaton: SuffixAutomaton, pattern: list[int]) -> int:
    state = ROOT
    for token_id in pattern:
        state = automaton.followers(state)[token_id]
    return state
