"""A draft that a replica was asked for, until it comes."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.integrations.vllm.step import DraftingStep


@dataclass(slots=True)
class Question:
    """A Propose that was not answered yet. Times are the event loop's."""

    base_length: int
    slot: int
    step: DraftingStep
    sent_s: float
    is_timed: bool
    """Whether the answer tells how fast the replica is: the first one does not, as the prompt is read before it."""
    is_waited_for: bool
    is_missed: bool = False

    def is_timely(self, now_s: float) -> bool:
        """Whether an answer now comes within the deadline of its step."""
        return now_s - self.sent_s <= self.step.deadline_s

    def is_pending(self, now_s: float) -> bool:
        """Whether it may still be answered within the deadline that it would have, were it waited for."""
        return self.is_timed and not self.is_waited_for and self.is_timely(now_s)
