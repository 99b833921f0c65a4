"""Lookups in the target: no round trip, and no model to run. Alone, or before a drafter that costs something, which a
lookup that is confident spares the work."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish, InTargetDrafter
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.speculation.lookup.index import LookupDraft, MakeIndex
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.speculation.trees.tree import DraftTree


class InTargetLookup:
    """See InTargetDrafter. Keeps what it knows of each sequence in its `lookup`."""

    max_draft_tokens: int | None = None
    """The longest draft: the lookup's, whatever the other drafter's is."""

    def __init__(
        self, name: str, make_index: MakeIndex, other: InTargetDrafter | None, min_accepted_tokens: float
    ) -> None:
        """other: drafts where a lookup does not promise min_accepted_tokens; None: nobody does."""
        self.name = name
        self._make_index = make_index
        self.other = other
        self._min_accepted_tokens = min_accepted_tokens

    @property
    def num_rounds(self) -> int:
        """Rounds of the other drafter: a lookup takes no time to speak of."""
        return 0 if self.other is None else self.other.num_rounds

    def allocate(self, num_blocks: int) -> int:
        return 0 if self.other is None else self.other.allocate(num_blocks)

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        for index, rows in enumerate(kept):
            run = rows.sequence.run
            if index not in wishes and run is not None and run.num_draft_tokens:
                # Chunk by chunk with the prefill: a long prompt's whole index would hold up a decode step.
                lookup = self._lookup_with(rows.sequence, rows.end_position)
                lookup.index_some(lookup.num_waiting)
        lookups = {index: self._look_up(wish) for index, wish in wishes.items()}
        others: dict[int, Drafts] = {}
        if self.other is not None:
            left = {
                index: wish for index, wish in wishes.items() if not lookups[index].promises(self._min_accepted_tokens)
            }
            others = dict(zip(left, self.other.follow(kept, left), strict=True))
        return [others.get(index) or _drafts(lookups[index], wish) for index, wish in wishes.items()]

    def _look_up(self, wish: DraftWish) -> LookupDraft:
        lookup = self._lookup_with(wish.sequence, len(wish.sequence.tokens))
        return lookup.draft(wish.num_draft_tokens, wish.tree)

    def _lookup_with(self, sequence: EngineSequence, length: int) -> SequenceLookup:
        """The sequence's lookup, with at least its first `length` tokens."""
        lookup = sequence.lookup
        if lookup is None:
            lookup = SequenceLookup(self._make_index(sequence.cache_salt), sequence.num_prompt_tokens)
            sequence.lookup = lookup
        lookup.replace_from(lookup.length, sequence.tokens[lookup.length : length])
        return lookup


def _drafts(draft: LookupDraft, wish: DraftWish) -> Drafts:
    shape = DraftTree.of_message(draft.parents, len(draft.token_ids))
    log_probs = tuple(map(math.log, draft.probabilities)) if wish.tree is not None else ()
    chosen = Drafts.chosen(draft.token_ids, shape, wish.sequence.sampling, log_probs)
    return chosen if chosen.tree is not None else dataclasses.replace(chosen, confidences=draft.probabilities)
