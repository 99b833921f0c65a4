"""Drafts go to the target, one verdict comes back."""

from __future__ import annotations

from orchestrator.rounds.draft import Draft
from orchestrator.rounds.peer import Peer
from orchestrator.rounds.timing import Mark, RoundTiming
from pilotfish.features import FeatureRequest
from pilotfish.messages import Verdict, Verify


class Verification:
    """A round that ends with its first verdict."""

    successor = None
    """What follows is decided at its end."""

    def __init__(self, draft: Draft, length: int, *, takes_forced: bool = False) -> None:
        """length: the committed tokens on which the draft stands. takes_forced: as Verify.takes_forced_drafts."""
        self.draft = draft
        self.base_length = length
        self.num_plain_tokens = 0
        """Tokens that came without a draft."""
        self.num_forced_tokens = 0
        """Tokens that a grammar drafted."""
        self._takes_forced = takes_forced
        self.timing: RoundTiming
        self._is_over = False

    @property
    def spared_drafter(self) -> bool:
        """Whether its draft says nothing of the drafter."""
        return self.draft.spared_drafter

    def is_over(self, length: int) -> bool:  # noqa: ARG002
        return self._is_over

    def num_coming_tokens(self, length: int) -> int:  # noqa: ARG002
        """Tokens that were asked for and have not come."""
        return 0 if self._is_over else 1

    def leave(self, length: int) -> None:
        """Nothing is to come but its verdict."""

    def take(self, verdict: Verdict, mark: Mark) -> None:
        """The verdict came. mark: the moment after it."""
        self._is_over = True
        self.timing = self.timing.arrived(mark)
        self.num_forced_tokens += verdict.num_accepted_grammar_tokens
        if verdict.num_draft_tokens == 0:
            self.num_plain_tokens += len(verdict.token_ids)

    def command(self, peer: Peer, length: int, features: FeatureRequest | None) -> Verify:
        # Replicas of a pool may differ in what they take.
        self.draft = self.draft.within(peer.limits.max_draft_tokens)
        return verify(peer, length, self.draft, features, takes_forced=self._takes_forced)


def verify(
    peer: Peer, length: int, draft: Draft, features: FeatureRequest | None = None, *, takes_forced: bool = False
) -> Verify:
    """What asks for a verdict on the draft, which stands on length tokens."""
    return Verify(
        sequence_id=peer.sequence_id,
        base_length=length,
        draft_token_ids=draft.token_ids,
        draft_probs=draft.probs,
        parents=draft.parents,
        features=features,
        takes_forced_drafts=takes_forced,
    )
