"""What a sequence asks of a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.messages import Decode, Verdict, Verify
from pilotfish.types import FinishReason


@dataclass(slots=True)
class Task:
    """What a replica is to do for one sequence: num_steps steps of num_rows rows."""

    num_rows: int
    num_steps: int
    resume: Callable[[], None]
    """Called when a result has travelled."""
    answers_each_step: bool = True
    """As a decode run does; a proposal is one result."""
    num_step_tokens: int = 1
    """Of a target's: output tokens of each step, which are accepted drafts and one more;"""
    goal_length: int = 0
    """output tokens of the sequence after the last step;"""
    is_last: bool = False
    """whether the sequence ends with it."""
    num_prompt_rows: int = 0
    """Not computed yet: they come before the first step, whose row is the last of them."""

    @property
    def base_length(self) -> int:
        """Of a target's: output tokens of the sequence before the next step."""
        return self.goal_length - self.num_steps * self.num_step_tokens

    def extend(self, run: Task) -> None:
        """Go on with a run of plain decoding where this one ends."""
        self.num_steps += run.num_steps
        self.goal_length, self.is_last = run.goal_length, run.is_last

    def command(self, sequence_id: int) -> Verify | Decode:
        """What asks a target for it."""
        if self.num_rows == 1:
            return Decode(sequence_id, self.base_length, self.num_steps)
        return Verify(sequence_id, self.base_length, (0,) * (self.num_rows - 1))

    def verdict(self, sequence_id: int) -> Verdict:
        """What a target answers after the next step."""
        return Verdict(
            sequence_id,
            self.base_length,
            num_draft_tokens=self.num_rows - 1,
            num_accepted_tokens=self.num_step_tokens - 1,
            token_ids=(0,) * self.num_step_tokens,
            finish_reason=FinishReason.LENGTH if self.is_last and self.num_steps == 1 else None,
        )
