"""The automaton against what it stands for: the substrings of a text, found by brute force."""

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.lookup.suffix_automaton import ROOT, SuffixAutomaton

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def automaton_of(token_ids: list[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    automaton.append(token_ids)
    return automaton


def occurrences(pattern: tuple[int, ...], token_ids: list[int]) -> list[int]:
    """Where the pattern starts."""
    size = len(pattern)
    return [start for start in range(len(token_ids) - size + 1) if tuple(token_ids[start : start + size]) == pattern]


def substrings(token_ids: list[int]) -> set[tuple[int, ...]]:
    ends = range(1, len(token_ids) + 1)
    return {tuple(token_ids[start:end]) for end in ends for start in range(end)}


def longest_recurring(token_ids: list[int]) -> int:
    """Length of the longest suffix that occurs more than once."""
    sizes = range(len(token_ids), 0, -1)
    return next((size for size in sizes if len(occurrences(tuple(token_ids[-size:]), token_ids)) > 1), 0)


def state_of(automaton: SuffixAutomaton, pattern: tuple[int, ...]) -> int | None:
    state = ROOT
    for token_id in pattern:
        if token_id not in automaton.followers(state):
            return None
        state = automaton.followers(state)[token_id]
    return state


def assert_holds(automaton: SuffixAutomaton, token_ids: list[int]) -> None:
    """Everything that can be asked of the automaton is true of the text."""
    assert len(automaton) == len(token_ids)
    assert list(automaton.token_ids) == token_ids
    state, num_tokens = automaton.recurring
    assert num_tokens == longest_recurring(token_ids)
    assert state == state_of(automaton, tuple(token_ids[len(token_ids) - num_tokens :]))
    for pattern in substrings(token_ids):
        state = state_of(automaton, pattern)
        assert state is not None
        starts = occurrences(pattern, token_ids)
        assert automaton.count(state) == len(starts)
        ends = [start + len(pattern) for start in starts]
        assert set(automaton.followers(state)) == {token_ids[end] for end in ends if end < len(token_ids)}
        shorter, num_shorter = automaton.shorter(state)
        assert shorter == state_of(automaton, pattern[len(pattern) - num_shorter :] if num_shorter else ())


@given(TOKENS)
def test_holds_the_substrings_and_how_often_they_occur(token_ids: list[int]) -> None:
    assert_holds(automaton_of(token_ids), token_ids)


@given(TOKENS, st.integers(0, 2))
def test_holds_nothing_else(token_ids: list[int], extra: int) -> None:
    automaton = automaton_of(token_ids)
    for pattern in substrings(token_ids):
        is_substring = (*pattern, extra) in substrings(token_ids)
        assert (state_of(automaton, (*pattern, extra)) is not None) == is_substring


@given(TOKENS, st.lists(st.tuples(st.integers(0, 24), TOKENS), max_size=4))
def test_truncate_leaves_no_trace(token_ids: list[int], statements: list[tuple[int, list[int]]]) -> None:
    automaton, truth = automaton_of(token_ids), list(token_ids)
    for length, more in statements:
        length = min(length, len(truth))
        truth[length:] = more
        automaton.truncate(length)
        automaton.append(more)
    assert_holds(automaton, truth)


def test_an_endless_repetition_stays_cheap_and_its_long_suffixes_are_counted() -> None:
    automaton = automaton_of([7] * 3000)
    state, num_tokens = automaton.recurring
    assert (num_tokens, automaton.count(state)) == (2999, 2)
    automaton.truncate(1)
    assert_holds(automaton, [7])
