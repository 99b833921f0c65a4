"""Suffix decoding (2411.04975): what most often followed the longest suffix that is known.

The suffix is looked for in the sequence itself, prompt and output, and in recent outputs of other
requests of the same salt. How far a draft goes, and where it branches, follows from the counts: a token is drafted
while the estimated chance that its whole path is accepted is worth its share of a verification.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from operator import itemgetter

from pilotfish.config import DraftConfig
from pilotfish.drafters.suffix.automaton import ROOT, SuffixAutomaton
from pilotfish.drafters.suffix.recent_outputs import SEPARATOR, MatchCursor, RecentOutputs, salt_of
from pilotfish.speculation.lookup.index import LookupDraft, LookupIndex, continuation_probability
from pilotfish.speculation.trees.tree import MAX_TREE_NODES
from pilotfish.speculation.trees.tree import ROOT as NO_PARENT
from pilotfish.types import TreeRequest

_INDEXED_PER_PROPOSAL = 16
"""Tokens of others' outputs that a proposal indexes on the way: a tenth of a millisecond, and at one proposal
for each few tokens of output more than come in."""


class SuffixIndex:
    """See the module. Appending costs amortised constant time, proposing K tokens O(K log K)."""

    def __init__(self, *, min_probability: float, recent: RecentOutputs | None = None, cache_salt: str = "") -> None:
        """min_probability: the least probability of a path for its last token to be drafted.

        recent: outputs of other requests to look in, and where `finish` leaves this one's; None for neither.
        """
        self._min_probability = min_probability
        self._salt = salt_of(cache_salt)
        self._own = SuffixAutomaton()
        self._recent = recent
        self._cursors: tuple[MatchCursor, ...] = ()

    def __len__(self) -> int:
        return len(self._own)

    @property
    def token_ids(self) -> Sequence[int]:
        return self._own.token_ids

    def append(self, token_ids: Sequence[int]) -> None:
        self._own.append(token_ids)

    def truncate(self, length: int) -> None:
        self._own.truncate(length)
        for cursor in self._cursors:
            cursor.rewind(length)

    def propose(self, max_depth: int, tree: TreeRequest | None = None) -> LookupDraft:
        """The draft that promises most accepted tokens; of equals the sequence's own, then the latest outputs'."""
        places = [(self._own, 0, *self._own.recurring)]
        if self._recent is not None:
            self._recent.index_some(_INDEXED_PER_PROPOSAL)
            self._meet(self._recent)
            places += [(cursor.automaton, self._salt, *cursor.follow(self._own.token_ids)) for cursor in self._cursors]
        drafts = [
            Growth(automaton, max_depth, tree, self._min_probability, salt).from_match(state, num_matched)
            for automaton, salt, state, num_matched in places
            if state != ROOT
        ]
        return max(drafts, key=lambda draft: draft.expected_accepted_tokens, default=LookupDraft())

    def finish(self, num_prompt_tokens: int) -> None:
        if self._recent is not None:
            self._recent.add([self._salt + token_id for token_id in self._own.token_ids[num_prompt_tokens:]])

    def _meet(self, recent: RecentOutputs) -> None:
        """Have a cursor in each of the store's automata, which it replaces now and then."""
        known = {id(cursor.automaton): cursor for cursor in self._cursors}
        self._cursors = tuple(
            known.get(id(automaton)) or MatchCursor(automaton, self._salt)
            for automaton in reversed(recent.generations)
            if len(automaton)
        )


class Growth:
    """One draft in the making: the likeliest paths first, as far as the limits let it grow."""

    def __init__(
        self, automaton: SuffixAutomaton, max_depth: int, tree: TreeRequest | None, min_probability: float, salt: int
    ) -> None:
        """tree: None for a chain, which follows the likeliest token alone. salt: that of the automaton's token ids."""
        self._automaton = automaton
        self._max_depth = max_depth
        self._max_nodes = max_depth if tree is None or max_depth == 0 else min(tree.max_nodes, MAX_TREE_NODES)
        self._branching = 1 if tree is None else tree.branching
        self._min_probability = min_probability
        self._salt = salt
        self._token_ids: list[int] = []
        self._parents: list[int] = []
        self._probabilities: list[float] = []
        self._depths: list[int] = []
        self._candidates: list[tuple[float, int, int, int, int, int]] = []
        """A heap of (-probability, age, parent, token id, state, tokens matched)."""
        self._num_candidates = 0

    def from_match(self, state: int, num_matched_tokens: int) -> LookupDraft:
        """The draft after a match that ends in `state`."""
        self._consider_followers(state, num_matched_tokens, NO_PARENT, 1.0)
        while self._candidates and len(self._token_ids) < self._max_nodes:
            value, _, parent, token_id, state, num_matched_tokens = heapq.heappop(self._candidates)
            node = len(self._token_ids)
            self._token_ids.append(token_id - self._salt)
            self._parents.append(parent)
            self._probabilities.append(-value)
            self._depths.append(1 if parent == NO_PARENT else self._depths[parent] + 1)
            if self._depths[node] < self._max_depth:
                self._consider_followers(state, num_matched_tokens, node, -value)
        is_chain = self._parents == list(range(NO_PARENT, len(self._parents) - 1))
        parents = () if is_chain else tuple(self._parents)
        return LookupDraft(tuple(self._token_ids), parents, tuple(self._probabilities))

    def _consider_followers(self, state: int, num_matched_tokens: int, parent: int, probability: float) -> None:
        automaton = self._automaton
        while state != ROOT and not automaton.followers(state):
            # The match lies at the end of the text: a shorter one may have been followed by something.
            state, num_matched_tokens = automaton.shorter(state)
        if state == ROOT:
            return
        followers = automaton.followers(state)
        num_occurrences = sum(map(automaton.count, followers.values()))
        found: list[tuple[float, int, int]] = []
        # What was seen later wins ties.
        for token_id, follower in reversed(followers.items()):
            chance = continuation_probability(automaton.count(follower), num_occurrences, num_matched_tokens)
            if token_id != SEPARATOR and probability * chance >= self._min_probability:
                found.append((-probability * chance, token_id, follower))
        for value, token_id, follower in heapq.nsmallest(self._branching, found, key=itemgetter(0)):
            self._num_candidates += 1
            candidate = (value, self._num_candidates, parent, token_id, follower, num_matched_tokens + 1)
            heapq.heappush(self._candidates, candidate)


def lookup(config: DraftConfig) -> Callable[[str], LookupIndex]:
    """Indexes as configured, which share one store of outputs unless that is turned off."""
    recent = RecentOutputs(config.suffix_shared_tokens) if config.suffix_shared_tokens else None
    return lambda cache_salt: SuffixIndex(
        min_probability=config.lookup_min_probability, recent=recent, cache_salt=cache_salt
    )
