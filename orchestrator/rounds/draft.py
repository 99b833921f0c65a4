"""What a round verifies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pilotfish.messages import Proposal
from pilotfish.types import SparseDistribution


@dataclass(frozen=True, slots=True)
class Draft:
    """What came of one request for draft tokens; none at all is an ordinary outcome."""

    token_ids: tuple[int, ...] = ()
    probs: tuple[SparseDistribution, ...] = ()
    """One per token in rejection mode, else empty."""
    parents: tuple[int, ...] = ()
    """A tree's parents, as in Verify; empty for a chain."""
    elapsed_s: float = 0.0
    """Time that the round waited for it."""
    compute_s: float = 0.0
    """Compute time that the drafter reports; 0: none reported."""
    problem: str = ""
    """Why it is empty, when something went wrong; empty if the drafter had no idea."""
    is_deferred: bool = False
    """The drafter was not asked: what it drafts from comes with the next verdict."""
    spared_drafter: bool = False
    """Whether a lookup made it in the drafter's place: it says nothing of the drafter."""
    drafter_version: int = 0
    """As in Proposal."""

    @classmethod
    def of(cls, proposal: Proposal, *, needs_probs: bool, elapsed_s: float = 0.0) -> Draft:
        """The proposal as a round's draft."""
        return cls(
            proposal.draft_token_ids,
            proposal.draft_probs if needs_probs else (),
            proposal.parents,
            elapsed_s,
            compute_s=proposal.timings.compute_time_ns / 1e9,
            drafter_version=proposal.drafter_version,
        )

    def within(self, max_tokens: int) -> Draft:
        """The draft's first max_tokens tokens; in a tree, parents come before their children."""
        if len(self.token_ids) <= max_tokens:
            return self
        kept = slice(max_tokens)
        return replace(self, token_ids=self.token_ids[kept], probs=self.probs[kept], parents=self.parents[kept])


NO_DRAFT = Draft()
