from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.trees.grafting import graft
from pilotfish.speculation.trees.tree import DraftTree
from tests.support.trees import tree_of_paths

PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=4)


def paths_of(token_ids: Sequence[int], tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(token_ids[node] for node in path) for path in tree.paths}


@given(PATHS, PATHS, st.integers(0, 20))
def test_it_holds_all_of_the_first_and_as_much_of_the_second_as_fits(
    first: list[list[int]], second: list[list[int]], max_nodes: int
) -> None:
    token_ids, tree = tree_of_paths(first)
    graft_token_ids, graft_tree = tree_of_paths(second)
    merged_token_ids, merged = graft(token_ids, tree, graft_token_ids, graft_tree, max_nodes)
    assert list(merged_token_ids[: len(tree)]) == token_ids
    assert merged.parents[: len(tree)] == tree.parents
    assert len(merged_token_ids) == len(merged) <= max(len(tree), max_nodes)
    wanted = paths_of(token_ids, tree) | paths_of(graft_token_ids, graft_tree)
    found = paths_of(merged_token_ids, merged)
    assert found <= wanted
    assert found == wanted or len(merged) == max(len(tree), max_nodes)
    for children in merged.children:
        siblings = [merged_token_ids[child] for child in children]
        assert len(set(siblings)) == len(siblings)
