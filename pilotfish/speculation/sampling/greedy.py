"""Exact match: the rule of greedy and of coupled verification.

The target's own choice is the one emitted at each position; drafts only save steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.penalties import Row, adjust
from pilotfish.speculation.trees.tree import DraftTree


def choose(blocks: BlockedLogits, rows: Sequence[Row]) -> list[int]:
    """The target's argmax of each row after penalties and bias, the lowest id among equals.

    An argmax, never a comparison of probabilities: rounding in a softmax can make two tokens equal.
    """
    return adjust(blocks, rows).argmax().tolist()


def match(tree: DraftTree, draft_token_ids: Sequence[int], choices: Sequence[int]) -> tuple[int, ...]:
    """The nodes from the root down that say what the target chose: choices[0] after the root, [i + 1] after node i."""
    path: list[int] = []
    node = child(tree, draft_token_ids, 0, choices[0])
    while node is not None:
        path.append(node)
        node = child(tree, draft_token_ids, node + 1, choices[node + 1])
    return tuple(path)


def child(tree: DraftTree, draft_token_ids: Sequence[int], row: int, token_id: int) -> int | None:
    """The first child of a row's node (row 0: the root) that says token_id."""
    return next((node for node in tree.children[row] if draft_token_ids[node] == token_id), None)
