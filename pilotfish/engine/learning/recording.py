"""One sequence's verified text with its features, as far as it has come. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.features import Features
from pilotfish.learning.record import LearnedText, kind_of, prompt_digest
from pilotfish.messages import OpenSequence

MAX_TEXT_TOKENS = 2048
"""The newest so many tokens of a text are kept: a head learns from what is near, and a text stays some MB."""
_MIN_ANSWER_TOKENS = 2
"""A token and the one that follows it: of less there is nothing to learn."""
_SLACK_TOKENS = 256
"""The oldest tokens are dropped so many at a time."""


@dataclass(slots=True)
class _Part:
    """Tokens of consecutive positions."""

    first_position: int = 0
    token_ids: list[int] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    """As in Features, of the tokens' positions."""

    @property
    def end_position(self) -> int:
        return self.first_position + len(self.token_ids)

    @property
    def token_bytes(self) -> int:
        return len(self.data) // max(1, len(self.token_ids))

    def cut(self, num_first: int, num_kept: int) -> None:
        """Drop the first num_first tokens, and all but num_kept of the others."""
        first, end = self.token_bytes * num_first, self.token_bytes * (num_first + num_kept)
        self.token_ids = self.token_ids[num_first : num_first + num_kept]
        self.data = self.data[first:end]
        self.first_position += num_first


class Recording:
    """See the module. The recorder's thread adds text."""

    def __init__(self, command: OpenSequence) -> None:
        self.request_id = command.learn_as
        self.prompt = command.prompt_token_ids
        self._part = _Part()
        self._longest = _Part()

    @property
    def num_bytes(self) -> int:
        """Features that it holds."""
        return len(self._part.data) + len(self._longest.data)

    def add(self, token_ids: Sequence[int], features: Features) -> None:
        """Take in text at the features' positions, in place of what is there and behind it. Where it does not continue
        what came before, it begins anew, and the longest part counts."""
        part, first = self._part, features.first_position
        is_same_form = not part.token_ids or part.token_bytes == features.token_bytes
        if not part.first_position <= first <= part.end_position or not is_same_form:
            if len(part.token_ids) > len(self._longest.token_ids):
                self._longest = part
            part = self._part = _Part()
        if not part.token_ids:
            part.first_position = first
        elif first < part.end_position:
            part.cut(0, first - part.first_position)
        num_tokens = min(len(token_ids), features.num_tokens)
        part.token_ids.extend(token_ids[:num_tokens])
        part.data += features.data[: num_tokens * features.token_bytes]
        if len(part.token_ids) > MAX_TEXT_TOKENS + _SLACK_TOKENS:
            part.cut(len(part.token_ids) - MAX_TEXT_TOKENS, MAX_TEXT_TOKENS)

    def text(self, finished_at: float) -> LearnedText | None:
        """The longest part, of which the newest tokens stay; None: there is nothing to learn from it. finished_at: unix
        time in seconds."""
        part = max(self._part, self._longest, key=lambda part: len(part.token_ids))
        if (num_more := len(part.token_ids) - MAX_TEXT_TOKENS) > 0:
            part.cut(num_more, MAX_TEXT_TOKENS)
        num_tokens = len(part.token_ids)
        prompt_len = min(max(0, len(self.prompt) - part.first_position), num_tokens)
        if num_tokens - prompt_len < _MIN_ANSWER_TOKENS:
            return None
        return LearnedText(
            request_id=self.request_id,
            kind=kind_of(self.prompt),
            prompt_len=prompt_len,
            token_ids=tuple(part.token_ids),
            features=Features(part.first_position, num_tokens, bytes(part.data)),
            finished_at=finished_at,
            prompt=prompt_digest(self.prompt),
        )
