"""Steps of reasoning as text: where one ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence

CHUNK_TOKENS = 16
"""Tokens of a step asked of a drafter at once: what comes behind the step's end is drafted in vain, and every
request is a round trip."""


class StepText:
    """One step in the making. Space before its first word is no end."""

    def __init__(self, ends: Sequence[bytes]) -> None:
        """ends: marks of which one ends it; at least one."""
        self._ends = ends
        self._text = b""

    def add(self, piece: bytes) -> bool:
        """Whether the step ends with this piece, that of its next token."""
        self._text = (self._text + piece).lstrip()
        return any(end in self._text for end in self._ends)
