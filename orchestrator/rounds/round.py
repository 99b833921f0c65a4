"""What the target was asked for: one verdict on a draft, or a run of tokens, each step of which brings a verdict."""

from __future__ import annotations

from orchestrator.control.decision import Decision
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.peer import Peer, Text
from orchestrator.rounds.timing import Mark, RoundTiming
from pilotfish.features import FeatureRequest
from pilotfish.messages import Decode, Verdict, Verify
from pilotfish.types import TreeRequest

_MIN_EXTENDED_TOKENS = 8
"""A shorter run is not extended: too little would be left to send the command in time."""
_LAST_PART, _MAX_LAST_TOKENS = 4, 16
"""Extend a run in its last quarter, at most 16 tokens before its end; earlier decides on stale data."""
_MAX_IDLE_TOKENS = 32
"""The most tokens before the request looks whether its replica drains."""


class Round:
    """Ends with its first verdict where it has a draft. Without one it is a run: the target decodes freely, without a
    round trip between its steps, until it has decoded what was asked for, or a draft sent meanwhile ends it."""

    def __init__(
        self,
        length: int,
        num_tokens: int = 1,
        *,
        draft: Draft = NO_DRAFT,
        credit_tokens: int = 1,
        num_in_target_drafts: int = 0,
        tree: TreeRequest | None = None,
        takes_forced: bool = False,
    ) -> None:
        """length: committed tokens, on which the draft stands. num_tokens: tokens that a run decodes.

        credit_tokens: the most that is asked for and not committed, however often a run is extended: what a client
        that does not read leaves waiting in memory.
        num_in_target_drafts: drafts that the target may make for itself in a run's step, branching within `tree`.
        takes_forced: whether it may draft what the grammar forces.
        """
        self.draft = draft
        """What it verifies, or why it verifies nothing."""
        self.verifies_draft = bool(draft.token_ids)
        self.base_length = length
        self.successor: Decision | None = None
        """The decision after the run, where it was made before the end."""
        self.num_plain_tokens = 0
        """Tokens that came without a draft."""
        self.num_forced_tokens = 0
        """Tokens that a grammar drafted."""
        self.spared_drafter = draft.spared_drafter
        """Whether the draft that it verified says nothing of the drafter."""
        self.timing: RoundTiming
        self._is_timed = True
        """Whether it was asked for once; asked for again, its time says nothing of a step."""
        self._takes_forced = takes_forced
        self._credit_tokens = credit_tokens
        self._goal_length = length + (1 if self.verifies_draft else min(num_tokens, credit_tokens))
        """Committed tokens at which it is over."""
        self._num_in_target_drafts = num_in_target_drafts
        self._tree = tree if num_in_target_drafts else None
        self._cut_in: tuple[int, Draft] | None = None
        """The committed tokens on which the draft stands that was sent into the run last, and the draft."""

    def is_over(self, length: int) -> bool:
        return length >= self._goal_length

    def num_coming_tokens(self, length: int) -> int:
        """Tokens that were asked for and have not come."""
        return max(0, self._goal_length - length)

    def take(self, verdict: Verdict, mark: Mark) -> None:
        """A verdict came. mark: the moment after it."""
        if self._cut_in is not None and not verdict.is_plain_or_forced:
            self._goal_length = verdict.base_length + len(verdict.token_ids)
            self.spared_drafter = self._cut_in[1].spared_drafter
        elif self._is_timed:
            self.timing = self.timing.arrived(mark)
        self.num_forced_tokens += verdict.num_accepted_grammar_tokens
        if verdict.is_plain_or_forced:
            self.num_plain_tokens += len(verdict.token_ids) - verdict.num_accepted_grammar_tokens

    def is_running_out(self, length: int, num_remaining_tokens: int) -> bool:
        """Whether it is time to decide what follows."""
        num_coming = self.num_coming_tokens(length)
        return self.successor is None and 0 < num_coming <= self._num_last_tokens(num_coming, num_remaining_tokens)

    def num_idle_tokens(self, length: int, num_remaining_tokens: int) -> int:
        """Tokens that may come before it runs out or is over."""
        num_coming = self.num_coming_tokens(length)
        num_last = self._num_last_tokens(num_coming, num_remaining_tokens)
        return max(0, min(num_coming - 1 - num_last, _MAX_IDLE_TOKENS))

    def _num_last_tokens(self, num_coming: int, num_remaining_tokens: int) -> int:
        """Its last tokens, during which is decided what follows; 0: it is short, or the answer ends with it."""
        num_run = self._goal_length - self.base_length
        if num_run < _MIN_EXTENDED_TOKENS or num_remaining_tokens <= num_coming:
            return 0
        return min(num_run // _LAST_PART, _MAX_LAST_TOKENS)

    def extend(self, length: int, num_tokens: int, now: Mark) -> None:
        """Decode num_tokens more. What is measured and counted begins anew: the run so far is another one."""
        self._goal_length += min(num_tokens, self._credit_tokens - self.num_coming_tokens(length))
        self.base_length = length
        self.num_plain_tokens = self.num_forced_tokens = 0
        self.timing = RoundTiming(now, now, now)

    def awaits_cut_in(self, text: Text) -> bool:
        """Whether a draft that still may hold is on its way into it."""
        if self._cut_in is None:
            return False
        length, draft = self._cut_in
        decoded = text.tokens_since(length)
        return len(decoded) < len(draft.token_ids) and decoded == draft.token_ids[: len(decoded)]

    def takes_drafts(self, text: Text) -> bool:
        """Whether a draft may end it now: none that still may hold is on its way, and more than a token is to come."""
        return not self.awaits_cut_in(text) and self.num_coming_tokens(text.length) > 1

    def cut_in(self, peer: Peer, length: int, draft: Draft) -> Verify | None:
        """What ends it with this draft, which stands on length tokens; None: too short to change anything.

        The target goes on meanwhile. It skips the beginning of the draft that it has decoded itself; where the two
        differ, or none is left, it drops the draft and the run goes on.
        """
        draft = draft.within(peer.limits.max_draft_tokens)
        if len(draft.token_ids) < 2:  # the first token is being decoded already
            return None
        self._cut_in = length, draft
        return self._verify(peer, length, draft)

    def end_at(self, length: int) -> None:
        """Nothing beyond length committed tokens is wanted any more."""
        self._goal_length = length

    def drop_draft(self) -> None:
        """The target does not take it: a token is decoded in its place, and nothing else is drafted."""
        self.verifies_draft = self._takes_forced = False

    def restart(self) -> None:
        """It is asked for again: no draft is on its way into it."""
        self._cut_in = None
        self._is_timed = False

    def command(self, peer: Peer, length: int, features: FeatureRequest | None) -> Verify | Decode:
        """What asks the replica for it, or for what is missing of it beyond length committed tokens."""
        limit = peer.limits.max_draft_tokens  # replicas of a pool may differ
        if self.verifies_draft:
            return self._verify(peer, length, self.draft.within(limit), features)
        return Decode(
            sequence_id=peer.sequence_id,
            base_length=length,
            num_tokens=self._goal_length - length,
            num_draft_tokens=min(self._num_in_target_drafts, limit),
            features=features,
            tree=self._tree and self._tree.within(limit),
            takes_forced_drafts=self._takes_forced,
        )

    def _verify(self, peer: Peer, length: int, draft: Draft, features: FeatureRequest | None = None) -> Verify:
        return Verify(
            sequence_id=peer.sequence_id,
            base_length=length,
            draft_token_ids=draft.token_ids,
            draft_probs=draft.probs,
            parents=draft.parents,
            features=features,
            takes_forced_drafts=self._takes_forced,
        )
