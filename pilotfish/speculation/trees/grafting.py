"""Two drafts of one round in one tree: what both hold is shared, the rest are branches."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.speculation.trees.tree import ROOT, DraftTree


def graft(
    token_ids: Sequence[int], tree: DraftTree, graft_token_ids: Sequence[int], graft_tree: DraftTree, max_nodes: int
) -> tuple[tuple[int, ...], DraftTree]:
    """Token ids and shape of the first draft with as much of the second as max_nodes leave room for.

    The first keeps its nodes and their order: those of the second come after, so that they are tried
    after the first's own candidates. Siblings stay distinct tokens if they were in each.
    """
    merged_token_ids, merged_parents = list(token_ids), list(tree.parents)
    node_of = {
        (parent, token_id): node for node, (parent, token_id) in enumerate(zip(tree.parents, token_ids, strict=True))
    }
    place_of = {ROOT: ROOT}
    for node, (parent, token_id) in enumerate(zip(graft_tree.parents, graft_token_ids, strict=True)):
        if parent not in place_of:
            continue  # there was no room for its parent
        key = (place_of[parent], token_id)
        if key not in node_of:
            if len(merged_parents) >= max_nodes:
                continue
            node_of[key] = len(merged_parents)
            merged_token_ids.append(token_id)
            merged_parents.append(key[0])
        place_of[node] = node_of[key]
    return tuple(merged_token_ids), DraftTree(tuple(merged_parents))
