"""Why speculation was off or limited for a request."""

from __future__ import annotations

from orchestrator.control.decision import Decision
from orchestrator.control.reasons import Reason


class Limitation:
    """What was found last, for the summary."""

    def __init__(self, reason: Reason | None) -> None:
        """reason: it never speculates; None: it may."""
        self.reason = reason
        self._details = ""

    @property
    def text(self) -> str:
        """For people; empty if there was none."""
        return self._details or (self.reason.text if self.reason else "")

    def note(self, decision: Decision) -> None:
        """Keep why, if it limits speculation."""
        if decision.reason.is_limiting:
            self.reason, self._details = decision.reason, decision.details

    def note_failure(self, problem: str) -> None:
        """What the drafter says about it."""
        self.reason, self._details = Reason.DRAFTER_FAILED, problem
