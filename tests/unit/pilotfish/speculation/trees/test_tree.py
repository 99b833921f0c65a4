import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.trees.tree import MAX_TREE_NODES, ROOT, DraftTree


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 12) -> DraftTree:
    num_nodes = draw(st.integers(0, max_nodes))
    return DraftTree(tuple(draw(st.integers(ROOT, node - 1)) for node in range(num_nodes)))


def test_shape_of_a_small_tree():
    """0 and 1 under the root, 2 and 3 under 0, 4 under 3."""
    tree = DraftTree((-1, -1, 0, 0, 3))
    assert tree.depths == (1, 1, 2, 2, 3)
    assert tree.depth == 3
    assert tree.children == ((0, 1), (2, 3), (), (), (4,), ())
    assert tree.ancestor_masks == (0b1, 0b11, 0b101, 0b1011, 0b10011, 0b110011)
    assert tree.paths == ((), (0,), (1,), (0, 2), (0, 3), (0, 3, 4))
    assert not tree.is_chain


@pytest.mark.parametrize("parents", [(0,), (-1, 1), (-2,), (-1, 0, 5)])
def test_a_parent_comes_before_its_child(parents):
    with pytest.raises(ValueError, match="must come before it"):
        DraftTree(parents)


def test_the_largest_tree():
    DraftTree((-1,) * MAX_TREE_NODES)
    with pytest.raises(ValueError, match="64 nodes; at most 63"):
        DraftTree((-1,) * (MAX_TREE_NODES + 1))


@given(trees())
def test_masks_paths_children_and_depths_agree(tree):
    for node, parent in enumerate(tree.parents):
        path = tree.paths[node + 1]
        assert tree.depths[node] == len(path)
        assert tree.ancestor_masks[node + 1] == 1 | sum(1 << (ancestor + 1) for ancestor in path)
        assert node in tree.children[parent + 1]
    assert sum(map(len, tree.children)) == len(tree)


@given(trees(), st.integers(0, 5), st.integers(-1, 12))
def test_what_is_kept_is_the_same_tree_cut(tree, max_depth, max_nodes):
    nodes = tree.kept_nodes(max_depth, max_nodes)
    cut = tree.select(nodes)
    assert len(cut) == min(max(0, max_nodes), sum(depth <= max_depth for depth in tree.depths))
    assert cut.depth <= max_depth
    for index, node in enumerate(nodes):
        assert [nodes[at] for at in cut.paths[index + 1]] == list(tree.paths[node + 1])


def test_a_node_is_not_kept_without_its_parent():
    with pytest.raises(ValueError, match="without its parent"):
        DraftTree((-1, 0)).select((1,))
