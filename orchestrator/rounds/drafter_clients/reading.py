"""Whether a draft replica still reads: a missed deadline then says nothing of how it drafts. Pure."""

from __future__ import annotations

_MANY_TOKENS = 64
"""More new tokens than these, of decoding without drafts, are read as a prompt is: in steps of their own."""
_PATIENCE_S = 10.0
"""The longest that reading may take: others' prompts may come before this one."""


class Reading:
    """What the replica of one sequence was sent to read."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self.is_over = False
        """Whether a draft has come since."""

    def open(self, now_s: float) -> None:
        """The replica gets the prompt and all that followed."""
        self._since_s = now_s
        self.is_over = False

    def go_on(self, num_tokens: int, now_s: float) -> None:
        """It gets so many tokens more."""
        if self.is_over and num_tokens > _MANY_TOKENS:
            self.open(now_s)

    def end(self) -> None:
        """A draft has come."""
        self.is_over = True

    def excuses(self, now_s: float) -> bool:
        """Whether a draft that does not come now is not to be held against the replica."""
        return not self.is_over and now_s - self._since_s <= _PATIENCE_S
