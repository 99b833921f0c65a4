"""One request's side of drafting ahead: what it asks a replica to prepare, and what it finds prepared."""

from __future__ import annotations

import msgspec

from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafter_clients.predraft_policy import BLOCK_ROUNDS, PredraftCounters, PredraftPolicy
from orchestrator.rounds.peer import Peer, Text
from pilotfish.messages import Predrafted, PredraftRequest, Proposal
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.statistics import DecayedAcceptance

_PRIOR_ACCEPTANCE = 0.7
"""Assumed conditional acceptance until a few rounds were observed."""
_NEIGHBOUR_ROUNDS = 8
"""A neighbouring position's acceptance counts as 8 rounds of a position's own. With acceptance 0.8, 12 outcomes then
foresee 79 % of the rounds; 80 % would be foreseen if acceptance were known."""


class SpeculationCache:
    """Holds the drafts of one round: those that continue the tokens last sent to the replica.

    A prepared draft is found by the tokens that were committed since, whatever it contains: choosing by its
    content would change the distribution of the output.
    """

    def __init__(self, counters: PredraftCounters) -> None:
        self._counters = counters
        self._prepared: list[Predrafted] = []
        self._num_unused_tokens = 0
        self.base_length = 0
        """Committed tokens when the replica was last sent any."""
        self.is_expecting = False
        """Whether the replica was asked to draft ahead of them."""

    def begin(self, base_length: int, *, is_expecting: bool) -> None:
        """The replica is sent the text up to base_length tokens: drafts that continue another text are dropped."""
        self._counters.num_wasted_tokens += self._num_unused_tokens
        self._num_unused_tokens = 0
        self._prepared.clear()
        self.base_length = base_length
        self.is_expecting = is_expecting

    def add(self, prepared: Predrafted) -> None:
        """Keep what came unasked; drafts of an earlier round are dropped."""
        num_tokens = len(prepared.draft_token_ids)
        self._counters.num_prepared_tokens += num_tokens
        if not self.is_expecting or prepared.base_length != self.base_length:
            self._counters.num_stale_drafts += len(prepared.own_token_ids)
            self._counters.num_wasted_tokens += num_tokens
            return
        self._prepared.append(prepared)
        self._num_unused_tokens += num_tokens

    def take(self, committed_token_ids: tuple[int, ...]) -> Proposal | None:
        """The draft for just these tokens after base_length, and count a hit or a miss."""
        if not self.is_expecting:
            return None
        for prepared in self._prepared:
            draft = prepared.draft(committed_token_ids)
            if draft is not None:
                self._counters.num_hits += 1
                self._num_unused_tokens -= len(draft.draft_token_ids)
                return draft
        self._counters.num_misses += 1
        return None

    def take_late(self, prepared: Predrafted, committed_token_ids: tuple[int, ...]) -> Proposal | None:
        """The draft for these tokens, of what came while it was being asked for: it serves as the answer."""
        draft = prepared.draft(committed_token_ids)
        num_tokens, num_used = len(prepared.draft_token_ids), 0 if draft is None else len(draft.draft_token_ids)
        self._counters.num_prepared_tokens += num_tokens
        self._counters.num_wasted_tokens += num_tokens - num_used
        self._counters.num_late_hits += draft is not None
        return draft


class Predrafts:
    """See the module. Follows the rounds of one request."""

    def __init__(self, policy: PredraftPolicy) -> None:
        self._policy = policy
        self._cache = SpeculationCache(policy.counters)
        self._acceptance = DecayedAcceptance(prior=_PRIOR_ACCEPTANCE, neighbour_weight=_NEIGHBOUR_ROUNDS)
        self._last_draft = NO_DRAFT
        self._last_length = 0
        self._last_s = 0.0
        self._is_sample = False
        """Whether the round goes the same way as the one before, so that its time tells how fast that way is."""
        self._num_left = 0
        """Rounds to come that go the way chosen last."""
        self._is_ahead = False
        """Whether that way is to draft ahead."""
        self._was_ahead: bool | None = None
        """Whether the round that is over was drafted ahead of; None: it says nothing of how long such rounds are."""

    def learn(self, sequence: Text) -> None:
        """A round begins: learn from the last draft's outcome, if nothing but its verification came between."""
        draft, self._last_draft = self._last_draft, NO_DRAFT
        self._was_ahead = None
        committed = sequence.tokens_since(self._last_length)
        if not draft.token_ids or not committed or len(committed) > len(draft.token_ids) + 1:
            return
        if not draft.parents:
            # The last of the committed tokens is the target's own.
            self._acceptance.add(len(draft.token_ids), num_common_tokens(draft.token_ids, committed[:-1]))
        if self._is_sample:
            self._was_ahead = self._cache.is_expecting

    def remember(self, sequence: Text, draft: Draft, now_s: float) -> None:
        """The round's draft is there, or was waited for in vain: so long took the round before, for drafting ahead may
        make drafts late."""
        if self._was_ahead is not None:
            num_tokens = sequence.length - self._last_length
            self._policy.add_round(now_s - self._last_s, num_tokens, is_ahead=self._was_ahead)
        self._was_ahead = None
        self._last_draft = draft
        self._last_length = sequence.length
        self._last_s = now_s

    def add(self, prepared: Predrafted) -> None:
        """Keep what came unasked."""
        self._cache.add(prepared)

    def take(self, sequence: Text, num_tokens: int | None) -> Proposal | None:
        """The draft prepared for just the committed tokens, cut to num_tokens (None: all of it)."""
        draft = self._cache.take(sequence.tokens_since(self._cache.base_length))
        if draft is not None:
            self._policy.add_hit()
        return _first(draft, num_tokens)

    def take_late(self, prepared: Predrafted, sequence: Text, num_tokens: int) -> Proposal | None:
        """As `take`, for a prepared draft that comes only after the draft was asked for."""
        return _first(self._cache.take_late(prepared, sequence.tokens_since(prepared.base_length)), num_tokens)

    def request(self, peer: Peer, sequence: Text, num_tokens: int) -> PredraftRequest | None:
        """What goes with a Propose for num_tokens on the committed tokens; what was prepared before is forgotten."""
        num_ahead = self._policy.budget(peer.model, peer.replica.load, num_tokens)
        if num_ahead and self._policy.mode == "auto":
            num_ahead = num_ahead if self._chooses_ahead() else 0
        else:
            self._stop_choosing()
        self._cache.begin(sequence.length, is_expecting=num_ahead > 0)
        return PredraftRequest(num_ahead, self._acceptance.probabilities(num_tokens)) if num_ahead else None

    def _chooses_ahead(self) -> bool:
        """Whether the round drafts ahead, as was chosen for BLOCK_ROUNDS rounds."""
        self._is_sample = self._num_left > 0
        if not self._num_left:
            self._num_left = BLOCK_ROUNDS
            self._is_ahead = self._policy.chooses_ahead()
        self._num_left -= 1
        return self._is_ahead

    def _stop_choosing(self) -> None:
        self._is_sample = False
        self._num_left = 0

    def forget(self) -> None:
        """What was prepared is gone with its replica, or of no use, as another drafts the next round."""
        self._stop_choosing()
        self._cache.begin(0, is_expecting=False)


def _first(draft: Proposal | None, num_tokens: int | None) -> Proposal | None:
    """The beginning of a chain: the round may want less by now."""
    if draft is None or num_tokens is None:
        return draft
    return msgspec.structs.replace(
        draft, draft_token_ids=draft.draft_token_ids[:num_tokens], draft_probs=draft.draft_probs[:num_tokens]
    )
