"""A draft that is sent into a run of plain decoding."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.answers.sequence import Sequence


@dataclass(frozen=True, slots=True)
class CutIn:
    """A draft on its way into a run."""

    length: int
    """Committed tokens that it stands on."""
    token_ids: tuple[int, ...]

    def may_hold(self, sequence: Sequence) -> bool:
        """Whether the target may still verify it: it goes on from what was decoded meanwhile."""
        decoded = sequence.tokens_since(self.length)
        return len(decoded) < len(self.token_ids) and decoded == self.token_ids[: len(decoded)]
