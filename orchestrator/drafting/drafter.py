"""A drafter: the contract, and the one that lives in the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from orchestrator.answers.sequence import Sequence
from pilotfish.types import SparseDistribution


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """What came of one request for draft tokens; nothing at all is an ordinary outcome."""

    token_ids: tuple[int, ...] = ()
    probs: tuple[SparseDistribution, ...] = ()
    """One per token in rejection mode, else empty."""
    elapsed_s: float = 0.0
    """Time the round waited for it."""
    parents: tuple[int, ...] = ()
    """Of a tree, as in Verify; empty for a chain."""
    num_in_target_drafts: int = 0
    """Drafts that the target may make for itself in a step of the run that follows."""
    compute_s: float = 0.0
    """Time that it took the drafter, as that says; 0: it does not say."""
    problem: str = ""
    """Why it is empty, when something went wrong; empty if the drafter had no idea."""
    is_deferred: bool = False
    """It is empty because the drafter was not asked: what it drafts from comes with the next verdict."""

    def within(self, max_tokens: int) -> DraftBlock:
        """At most its first max_tokens tokens; of a tree, no token comes before its parent."""
        if len(self.token_ids) <= max_tokens:
            return self
        kept = slice(max_tokens)
        return replace(self, token_ids=self.token_ids[kept], probs=self.probs[kept], parents=self.parents[kept])


class Drafter(ABC):
    """Proposes tokens for one sequence. Nothing that happens here fails a request."""

    @property
    def num_missed_deadlines(self) -> int:
        return 0

    @property
    def unavailable_reason(self) -> str:
        """Why proposals cannot be had now; empty if they can."""
        return ""

    @property
    def is_saturated(self) -> bool:
        """Whether proposals cannot be had because all places of the draft pool are taken."""
        return False

    def prepare(self, sequence: Sequence) -> None:  # noqa: B027
        """Begin to read the prompt, while the target does. Optional; never raises."""

    @abstractmethod
    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        """At most num_tokens tokens that continue the committed ones, or a tree of that depth. Raises nothing but
        cancellation."""

    def handed_on(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        """The draft made ahead for the committed tokens that the target was handed, and verifies by now.

        num_tokens: wanted of the rounds from here on.
        """
        return DraftBlock()

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        """What `propose` would answer, where that is known at once and costs next to nothing; else nothing.

        Asked while the target decodes plainly: a draft that can be told ends the run.
        """
        return DraftBlock()

    def close(self) -> None:  # noqa: B027
        """Free what is held elsewhere. Idempotent."""


class InTargetDrafter(Drafter):
    """Proposes nothing itself: it only says how many drafts the target may make for a step."""

    unavailable_reason = ""

    def __init__(self, proposer: str, target_proposer: str) -> None:
        """target_proposer: what the target says that it has; empty if nothing."""
        if proposer != target_proposer:
            has = f"it has {target_proposer}" if target_proposer else "it has none"
            self.unavailable_reason = f"no drafter {proposer} in the target: {has} (target.drafter)"

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        return DraftBlock(num_in_target_drafts=num_tokens)
