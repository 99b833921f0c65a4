"""Tokens of a text that grows at its end."""

from __future__ import annotations

from bisect import bisect_left

from pilotfish.models.tokens.continuation import Continuation
from pilotfish.speculation.common_prefix import num_common_tokens

_WINDOW_TOKENS = 24
"""Tokens before a change that are tokenised again: the last ones may end elsewhere with what follows them."""
_EQUAL_TOKENS = 8
"""Tokens in a row that must come out as they were: what is before them is then left as it was."""


class TextTokens:
    """The tokens that a tokenizer makes of the whole text, kept as it changes at the end: each change tokenises the
    last words alone, whatever the text's length.

    Words are tokenised apart by nearly all tokenizers, so that what is before _EQUAL_TOKENS equal tokens is as it would
    come out with the whole text; where that is not so, a draft is worse and nothing else.
    """

    def __init__(self, continuation: Continuation) -> None:
        self._continuation = continuation
        self.text = ""
        self.token_ids: list[int] = []
        self._starts: list[int] = []
        """Place in the text, in characters, where each token begins."""

    def replace_from(self, length: int, text: str) -> int:
        """Keep the first `length` characters, and put the text behind them; the tokens at the beginning that stay."""
        if length == len(self.text) and not text:
            return len(self.token_ids)
        self.text = self.text[:length] + text
        end = bisect_left(self._starts, length)
        del self.token_ids[end:], self._starts[end:]
        num_tokens = _WINDOW_TOKENS
        while (num_kept := self._tokenise_from(max(0, end - num_tokens))) is None:
            num_tokens *= 4
        return num_kept

    def _tokenise_from(self, first: int) -> int | None:
        """Tokenise from the token `first` on; the tokens at the beginning that stay, or None where more than the
        window may be others."""
        begin = self._starts[first] if first else 0
        token_ids, offsets = self._continuation.encode(self.text[begin:])
        starts = [begin + offset for offset in offsets]
        at = 0
        if first:
            place = self._first_equal(first, token_ids, starts)
            if place is None:
                return None
            first, at = place
        num_kept = first + num_common_tokens(self.token_ids[first:], token_ids[at:])
        self.token_ids[first:], self._starts[first:] = token_ids[at:], starts[at:]
        return num_kept

    def _first_equal(self, first: int, token_ids: list[int], starts: list[int]) -> tuple[int, int] | None:
        """Where the known tokens from `first` on, and those of a window that begins there, are alike for a while."""
        for known in range(first, len(self.token_ids) - _EQUAL_TOKENS + 1):
            begin = self._starts[known]
            at = bisect_left(starts, begin)
            is_between_characters = self._starts[known - 1] < begin and at < len(starts) and starts[at] == begin
            equal = self.token_ids[known : known + _EQUAL_TOKENS]
            if is_between_characters and token_ids[at : at + _EQUAL_TOKENS] == equal:
                return known, at
        return None
