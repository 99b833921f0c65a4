"""The automaton matches a text against another one; that it holds what it stands for: test_suffix.py."""

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.suffix.automaton import ROOT, SuffixAutomaton

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def automaton_of(token_ids: list[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    automaton.append(token_ids)
    return automaton


def state_of(automaton: SuffixAutomaton, pattern: list[int]) -> int:
    state = ROOT
    for token_id in pattern:
        state = automaton.followers(state)[token_id]
    return state


@given(st.lists(TOKENS, min_size=1, max_size=4), TOKENS)
def test_another_text_is_matched_while_this_one_grows(parts: list[list[int]], other: list[int]) -> None:
    automaton, state, num_matched = automaton_of(parts[0]), ROOT, 0
    for position, token_id in enumerate(other):
        if position < len(parts) - 1:
            automaton.append(parts[position + 1])
        state, num_matched = automaton.advance(state, num_matched, token_id)
        assert state == state_of(automaton, other[position + 1 - num_matched : position + 1])
    if len(parts) == 1:
        suffixes = (str(other[start:])[1:-1] for start in range(len(other) + 1))
        longest = next(suffix for suffix in suffixes if suffix in str(parts[0]))
        assert num_matched == len(longest.replace(",", "").replace(" ", ""))


def test_an_endless_repetition_stays_cheap_and_its_long_suffixes_are_counted() -> None:
    automaton = automaton_of([7] * 3000)
    state, num_tokens = automaton.recurring
    assert (num_tokens, automaton.count(state)) == (2999, 2)
    automaton.truncate(1)
    assert automaton.recurring == (ROOT, 0)
