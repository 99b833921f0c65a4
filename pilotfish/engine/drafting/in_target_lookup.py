"""Lookups in the target: no round trip, and no model to run. Alone, or before a drafter that costs something.

A lookup that is confident spares the other drafter the work; where drafts may branch, one that is not
joins the other's candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish, InTargetDrafter
from pilotfish.engine.core.sequence import DecodeTask, EngineSequence
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.speculation.lookup.index import LookupDraft, LookupIndex, one_hot_probs
from pilotfish.speculation.lookup.lookups import MakeIndex
from pilotfish.speculation.trees.grafting import graft
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import TreeRequest

_GRAFTED_SHARE = 4
"""One node of so many is kept for a lookup that is not confident."""


class InTargetLookup:
    """See InTargetDrafter. Keeps the index of each sequence in its `lookup_index`."""

    def __init__(
        self,
        name: str,
        make_index: MakeIndex,
        *,
        other: InTargetDrafter | None = None,
        min_accepted_tokens: float = 0.0,
    ) -> None:
        """other: drafts where a lookup does not promise min_accepted_tokens; None: nobody does."""
        self.name = name
        self._make_index = make_index
        self._other = other
        self._min_accepted_tokens = min_accepted_tokens if other is not None else 0.0

    @property
    def num_rounds(self) -> int:
        """The other's: a lookup takes no time to speak of."""
        return 0 if self._other is None else self._other.num_rounds

    def allocate(self, num_blocks: int) -> int:
        return 0 if self._other is None else self._other.allocate(num_blocks)

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        for rows in kept:
            task = rows.sequence.task
            if isinstance(task, DecodeTask) and task.num_draft_tokens:
                # Chunk by chunk with the prefill: a long prompt's whole index would hold up a decode step.
                _catch_up(rows.sequence, self._make_index, rows.first_position + len(rows.step_rows))
        lookups = {index: self._look_up(wish) for index, wish in wishes.items()}
        others: dict[int, Drafts] = {}
        if self._other is not None:
            left = {
                index: _with_room(wish, lookups[index])
                for index, wish in wishes.items()
                if not lookups[index].promises(self._min_accepted_tokens)
            }
            others = dict(zip(left, self._other.follow(kept, left), strict=True))
        return [
            _grafted(other, lookups[index], wish) if (other := others.get(index)) else _drafts(lookups[index], wish)
            for index, wish in wishes.items()
        ]

    def _look_up(self, wish: DraftWish) -> LookupDraft:
        index = _catch_up(wish.sequence, self._make_index, len(wish.sequence.tokens))
        return index.propose(wish.num_draft_tokens, wish.tree)


def _catch_up(sequence: EngineSequence, make_index: MakeIndex, length: int) -> LookupIndex:
    """The sequence's index, with at least its first `length` tokens."""
    index = sequence.lookup_index
    if index is None:
        index = sequence.lookup_index = make_index()
    index.append(sequence.tokens[len(index) : length])
    return index


def _with_room(wish: DraftWish, draft: LookupDraft) -> DraftWish:
    """The wish with some of its nodes kept for the lookup."""
    if wish.tree is None or not draft.token_ids:
        return wish
    kept = min(len(draft.token_ids), wish.tree.max_nodes // _GRAFTED_SHARE)
    return dataclasses.replace(wish, tree=TreeRequest(wish.tree.max_nodes - kept, wish.tree.branching))


def _grafted(other: Drafts, draft: LookupDraft, wish: DraftWish) -> Drafts:
    """The other's drafts with the lookup's candidates after them, where they may branch."""
    if wish.tree is None or not draft.token_ids:
        return other
    shape = DraftTree.of_message(draft.parents, len(draft.token_ids))
    token_ids, tree = graft(other.token_ids, other.shape, draft.token_ids, shape, wish.tree.max_nodes)
    probs = one_hot_probs(token_ids[len(other) :], wish.sequence.sampling)
    return Drafts(token_ids, (*other.probs, *probs), None if tree.is_chain else tree)


def _drafts(draft: LookupDraft, wish: DraftWish) -> Drafts:
    shape = DraftTree.of_message(draft.parents, len(draft.token_ids))
    chosen = Drafts.chosen(draft.token_ids, shape, wish.sequence.sampling)
    return chosen if chosen.tree is not None else dataclasses.replace(chosen, confidences=draft.probabilities)
