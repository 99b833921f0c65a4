"""A drafter that lives in the target: the target drafts for itself while it decodes."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.drafter import DraftBlock


class InTargetDrafter:
    """See Drafter. Proposes nothing itself: it only says how many drafts the target may make for a step."""

    num_missed_deadlines = 0
    is_saturated = False

    def __init__(self, proposer: str, target_proposer: str) -> None:
        """target_proposer: what the target says that it has; empty if nothing."""
        self.unavailable_reason = ""
        if proposer != target_proposer:
            has = f"it has {target_proposer}" if target_proposer else "it has none"
            self.unavailable_reason = f"no drafter {proposer} in the target: {has} (target.drafter)"

    def prepare(self, sequence: Sequence) -> None:
        """Nothing: it reads the prompt with the target."""

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        return DraftBlock(num_in_target_drafts=num_tokens)

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        """Nothing: drafts are made where they are verified."""
        return DraftBlock()

    def close(self) -> None:
        """Nothing is held elsewhere."""
