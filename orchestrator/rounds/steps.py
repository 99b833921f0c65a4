"""Steps of reasoning that a drafter writes, as the machine sees them."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.control.reasons import Limitation


class NoSteps:
    """The steps of a request that speculates over tokens only: none."""

    num_steps = 0
    """Drafted steps that were judged."""
    num_accepted_steps = 0

    def __init__(self) -> None:
        self.limitation = Limitation(None)
        """Why steps could not be had."""

    def is_due(self, sequence: Sequence) -> bool:  # noqa: ARG002
        """Whether a drafter may write what comes next: the committed tokens end where a step does."""
        return False
