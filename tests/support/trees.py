"""Draft trees from paths of tokens."""

from collections.abc import Sequence

from pilotfish.speculation.trees.tree import MAX_TREE_NODES, ROOT, DraftTree


def tree_of_paths(paths: Sequence[Sequence[int]], max_nodes: int = MAX_TREE_NODES) -> tuple[list[int], DraftTree]:
    """Token ids and shape of the tree that holds each path of token ids; common prefixes are shared.

    Earlier paths first: the rest is cut at max_nodes. Siblings are distinct tokens.
    """
    token_ids: list[int] = []
    parents: list[int] = []
    node_of: dict[tuple[int, int], int] = {}
    for path in paths:
        parent = ROOT
        for token_id in path:
            node = node_of.get((parent, token_id))
            if node is None:
                if len(parents) == max_nodes:
                    break
                node = node_of[parent, token_id] = len(parents)
                token_ids.append(token_id)
                parents.append(parent)
            parent = node
    return token_ids, DraftTree(tuple(parents))
