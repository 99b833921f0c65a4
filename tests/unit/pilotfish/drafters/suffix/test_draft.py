"""Suffix decoding: whole drafts against the definition by brute force, branches, rewinds, other requests' outputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.suffix.draft import SuffixIndex
from pilotfish.drafters.suffix.recent_outputs import RecentOutputs
from pilotfish.speculation.lookup.index import LookupDraft, continuation_probability
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import TreeRequest

TOKENS = st.lists(st.integers(0, 2), max_size=24)
A, B, C, D, E, F = range(10, 16)


def indexed(token_ids: list[int], min_probability: float = 0.0, recent: RecentOutputs | None = None) -> SuffixIndex:
    index = SuffixIndex(min_probability=min_probability, recent=recent)
    index.append(token_ids)
    return index


def remembering(*outputs: list[int]) -> RecentOutputs:
    store = RecentOutputs(10_000)
    for output in outputs:
        store.add(output)
    store.index_some(10_000)
    return store


def ends_of(pattern: list[int], token_ids: list[int]) -> list[int]:
    size = len(pattern)
    return [start + size for start in range(len(token_ids) - size + 1) if token_ids[start : start + size] == pattern]


def drafted_by_definition(token_ids: list[int], max_depth: int) -> LookupDraft:
    """The likeliest follower of the longest context, again and again; of equals the one first seen latest."""
    suffixes = [token_ids[start:] for start in range(len(token_ids))]
    context = next((suffix for suffix in suffixes if len(ends_of(suffix, token_ids)) > 1), [])
    drafted: list[int] = []
    probabilities: list[float] = []
    while context and len(drafted) < max_depth:
        ends = ends_of(context, token_ids)
        followers = [token_ids[end] for end in ends if end < len(token_ids)]
        if not followers:
            shorter = [context[start:] for start in range(1, len(context))]
            context = next((suffix for suffix in shorter if len(ends_of(suffix, token_ids)) > len(ends)), [])
            continue
        best = max(followers, key=lambda token: (followers.count(token), followers.index(token)))
        chance = continuation_probability(followers.count(best), len(followers), len(context))
        probabilities.append(chance * (probabilities[-1] if probabilities else 1))
        drafted.append(best)
        context = [*context, best]
    return LookupDraft(tuple(drafted), (), tuple(probabilities))


def test_it_branches_where_both_are_likely() -> None:
    draft = indexed([A, B, C, E, A, B, D, F, A, B], min_probability=0.05).propose(
        2, TreeRequest(max_nodes=4, branching=3)
    )
    tree = DraftTree(draft.parents)
    paths = {tuple(draft.token_ids[node] for node in path) for path in tree.paths if len(path) == 2}
    assert paths == {(C, E), (D, F)}
    assert tree.children[0] == (0, 1)


@given(TOKENS, st.integers(1, 6))
def test_a_chain_equals_its_definition(token_ids: list[int], max_depth: int) -> None:
    draft, expected = indexed(token_ids).propose(max_depth), drafted_by_definition(token_ids, max_depth)
    assert draft.token_ids == expected.token_ids
    assert draft.probabilities == pytest.approx(expected.probabilities)


@given(TOKENS, st.integers(1, 5), st.integers(1, 12), st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.3]))
def test_trees_stay_within_their_limits(
    token_ids: list[int], depth: int, nodes: int, branching: int, least: float
) -> None:
    draft = indexed(token_ids, least).propose(depth, TreeRequest(nodes, branching))
    tree = DraftTree(draft.parents) if draft.parents else DraftTree.chain(len(draft.token_ids))
    assert len(draft.token_ids) == len(draft.probabilities) == len(tree) <= nodes
    assert tree.depth <= depth
    assert all(probability >= least for probability in draft.probabilities)
    for children in tree.children:
        siblings = [draft.token_ids[child] for child in children]
        assert len(set(siblings)) == len(siblings) <= branching
        values = [draft.probabilities[child] for child in children]
        assert values == sorted(values, reverse=True)
        assert sum(values) <= 1.0
    chain = indexed(token_ids, least).propose(depth)
    if nodes >= depth:
        assert draft.expected_accepted_tokens >= chain.expected_accepted_tokens - 1e-9


def test_outputs_of_others_are_looked_up() -> None:
    store = remembering([A, B, C, D, E, F, A, C, E])
    assert indexed([1, 2, C, D], recent=store).propose(3).token_ids == (E, F, A)
    assert indexed([1, 2, C, D]).propose(3) == LookupDraft()


def test_a_draft_does_not_run_from_one_output_into_the_next() -> None:
    store = remembering([1, 2, 3, 4, 5, 6, A, B, C], [C, D, E, F, 1, 1, 2, 2])
    assert indexed([A, B], recent=store).propose(5).token_ids == (C,)


def test_the_own_text_wins_where_it_promises_as_much() -> None:
    store = remembering([9, 9, 9, 9, 9, A, B, D, E])
    assert indexed([A, B, C, E, A, B], recent=store).propose(1).token_ids == (C,)


def test_what_a_sequence_said_serves_the_next_one() -> None:
    store = RecentOutputs(10_000)
    first = indexed([1, 2, 3, *range(20, 30)], recent=store)
    first.finish(num_prompt_tokens=3)
    second = indexed([21, 22], recent=store)
    assert second.propose(2).token_ids == (23, 24)
    # The prompt is the first one's own.
    assert indexed([2, 3], recent=store).propose(1) == LookupDraft()


def test_a_store_that_turns_over_is_followed() -> None:
    store = RecentOutputs(24)  # an output fills half of it
    index = indexed([1, 2], recent=store)
    for first in (100, 200, 300, 400):
        store.add([*range(first, first + 8), 1, 2, first])
        store.index_some(1000)
        assert index.propose(1).token_ids == (first,)
