"""Where an output ends: stop token ids and max_tokens inside a block, stop strings in streamed text.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pilotfish.types import FinishReason


def cut(
    outcome_token_ids: Sequence[int],
    num_accepted: int,
    *,
    stop_token_ids: Collection[int],
    remaining_tokens: int,
) -> tuple[tuple[int, ...], int, FinishReason | None]:
    """The tokens of a round that become output, how many of them are accepted drafts, and why it ends there.

    The first stop token id is the last token of the output. remaining_tokens: how many the
    sequence may still put out, at least 1. A stop on the last allowed token is a stop.
    """
    token_ids = tuple(outcome_token_ids[:remaining_tokens])
    for index, token_id in enumerate(token_ids):
        if token_id in stop_token_ids:
            return token_ids[: index + 1], min(num_accepted, index + 1), FinishReason.STOP
    finish_reason = FinishReason.LENGTH if len(token_ids) == remaining_tokens else None
    return token_ids, min(num_accepted, len(token_ids)), finish_reason


class StopStringMatcher:
    """Finds stop strings in text that comes in pieces, and passes on what cannot be part of one.

    The match that is complete first wins; of those complete at the same character, the longest.
    So the result does not depend on how the text is cut into pieces.
    """

    __slots__ = ("_held", "_keeps_match", "_matched", "_num_passed", "_stop_strings")

    def __init__(self, stop_strings: Sequence[str], *, keeps_match: bool = False) -> None:
        """keeps_match: whether what ended the text is part of it."""
        if not all(stop_strings):
            raise ValueError("a stop string is empty; remove it")
        self._stop_strings = tuple(stop_strings)
        self._keeps_match = keeps_match
        self._held = ""
        self._num_passed = 0
        """Characters of what is held back in which no match may end."""
        self._matched: str | None = None

    def pass_by(self, text: str) -> str:
        """Text that is safe to emit. No match ends in this text; one that ends behind it may begin here."""
        text = self._hold(self._held + text)
        self._num_passed = len(self._held)
        return text

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that is safe to emit, and the stop string that ended it, if one did.

        Nothing is emitted from the match on, or behind it if it is kept; later pushes emit nothing.
        """
        if self._matched is not None:
            return "", self._matched
        text = self._held + text
        end, length, self._matched = self._first_match(text)
        if self._matched is not None:
            self._held = ""
            return text[: end if self._keeps_match else end - length], self._matched
        return self._hold(text), None

    def flush(self) -> str:
        """The text held back, when no more comes."""
        held, self._held = self._held, ""
        return held

    def _hold(self, text: str) -> str:
        """The text up to where a match may begin; the rest is held back."""
        start = len(text) - self._num_held(text)
        self._held = text[start:]
        self._num_passed = max(0, self._num_passed - start)
        return text[:start]

    def _first_match(self, text: str) -> tuple[int, int, str | None]:
        """End, length and string of the first complete match."""
        best: tuple[int, int, str | None] = (len(text) + 1, 0, None)
        for stop_string in self._stop_strings:
            length = len(stop_string)
            start = text.find(stop_string, max(0, self._num_passed + 1 - length))
            if start >= 0:
                best = min(best, (start + length, length, stop_string), key=lambda match: (match[0], -match[1]))
        return best

    def _num_held(self, text: str) -> int:
        """Length of the longest suffix of text that begins a stop string."""
        longest = max(map(len, self._stop_strings), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            # Not the whole string: that would have matched.
            if any(stop_string.startswith(text[-length:]) for stop_string in self._stop_strings):
                return length
        return 0
