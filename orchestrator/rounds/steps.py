"""Steps of reasoning that a drafter writes, as the machine and its session see them."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.control.reasons import Limitation
from orchestrator.rounds.commands import AcceptedStep


class NoSteps:
    """The steps of a request that speculates over tokens only: none."""

    are_possible = False
    """Whether every token is to be looked at, as a step may end there."""
    num_steps = 0
    """Drafted steps that were judged."""
    num_accepted_steps = 0

    def __init__(self) -> None:
        self.limitation = Limitation(None)
        """Why steps could not be had."""

    def prepare(self, sequence: Sequence) -> None:
        """Have the drafter read the prompt, while the target does."""

    def is_due(self, sequence: Sequence) -> bool:  # noqa: ARG002
        """Whether a drafter may write what comes next: the committed tokens end where a step does."""
        return False

    async def next(self, sequence: Sequence) -> AcceptedStep | None:  # noqa: ARG002
        """A drafter's step that stands; None: the target writes the next one."""
        return None

    def close(self) -> None:
        """Free the drafter's place. Idempotent."""
