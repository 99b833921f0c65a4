"""Exact match: the rule of greedy and of coupled verification.

The target's own choice is the one emitted at each position; drafts only save steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.speculation.blocks import BlockedLogits
from pilotfish.speculation.penalties import Row, adjust
from pilotfish.speculation.trees import DraftTree


def choose(blocks: BlockedLogits, rows: Sequence[Row]) -> list[int]:
    """The target's argmax of each row after penalties and bias, the lowest id among equals.

    An argmax, never a comparison of probabilities: rounding in a softmax can make two tokens equal.
    """
    return adjust(blocks, rows).argmax().tolist()


def match(tree: DraftTree, draft_token_ids: Sequence[int], choices: Sequence[int]) -> tuple[int, ...]:
    """The nodes from the root down that say what the target chose: choices[0] after the root, [i + 1] after node i."""
    path: list[int] = []
    row = 0
    while True:
        node = next((child for child in tree.children[row] if draft_token_ids[child] == choices[row]), None)
        if node is None:
            return tuple(path)
        path.append(node)
        row = node + 1
