"""Token ids to text while they arrive. Torch-free.

A character may need several tokens, so a token's text is not always known when it comes: the
decoder shows such an unfinished character as U+FFFD at the end. The detokenizer decodes a short
window of the latest tokens, emits what is certain, and holds the rest back.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Protocol

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")

REPLACEMENT = "\ufffd"
"""What a decoder shows for bytes that are no character, or none yet."""
_MAX_PARTIAL_TOKENS = 3
"""A UTF-8 character has at most 4 bytes: after 3 tokens of one byte each the next one completes it."""
_MAX_WINDOW_TOKENS = 32
_KEPT_WINDOW_TOKENS = 16
"""Tokens kept when the window is cut inside a character: more than enough bytes to find the beat of UTF-8 again."""


class Decoder(Protocol):
    """The part of a Tokenizer that is needed here."""

    @property
    def special_token_ids(self) -> frozenset[int]: ...

    @property
    def token_bytes(self) -> Mapping[int, bytes] | None:
        """What each token stands for, special ones for nothing; None where text is not just its tokens' bytes."""

    def decode(self, token_ids: Sequence[int], skip_special: bool = True) -> str: ...


class Detokenizer(Protocol):
    """Streams the text of one sequence."""

    def add(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens; may be empty."""

    def flush(self) -> str:
        """The text still held back, when no token will follow."""


class IncrementalDetokenizer:
    """Streams the text of one sequence; the deltas of `add` and `flush` join to `decode` of all its tokens.

    Costs one or two decodes of a few tokens for each token, however long the sequence is. With
    byte-fallback tokenizers (SentencePiece) the joined text may differ from `decode` where a
    model writes bytes that are not UTF-8: `decode` then spoils the valid neighbours as well.
    """

    def __init__(self, decoder: Decoder, skip_special: bool = True) -> None:
        self._decoder = decoder
        self._skipped_ids = decoder.special_token_ids if skip_special else frozenset()
        self._window: list[int] = []
        self._num_clean_tokens = 0  # window tokens up to the latest place where the text ended in a whole character
        self._num_emitted_chars = 0  # of the window's text
        self._num_partial_tokens = 0  # since that place
        self.num_held_chars = 0
        """Of an unfinished character, as the decoder would show it now."""

    def add(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens; may be empty."""
        return "".join(self._add_one(token_id) for token_id in token_ids if token_id not in self._skipped_ids)

    def flush(self) -> str:
        """The text still held back, when no token will follow. Ends the stream: later tokens start a new one."""
        delta = self._decode(self._window)[self._num_emitted_chars :]
        self._window, self._num_clean_tokens, self._num_emitted_chars, self._num_partial_tokens = [], 0, 0, 0
        self.num_held_chars = 0
        return delta

    def _add_one(self, token_id: int) -> str:
        text = self._decode([*self._window, token_id])
        if len(text) == self._num_emitted_chars + self.num_held_chars and not self._decode([token_id, token_id]):
            return ""  # no text anywhere, such as an id without a token: at the window's begin it would hide a space
        self._window.append(token_id)
        num_held_chars = len(text) - len(text.rstrip(REPLACEMENT))
        if num_held_chars == 0:
            delta = text[self._num_emitted_chars :]
            self._start_window_at_last_clean_place()
            self.num_held_chars = 0
            return delta
        self._num_partial_tokens += 1
        if self._num_partial_tokens > _MAX_PARTIAL_TOKENS:
            # No character takes that long: all but the end is what the model really wrote.
            num_held_chars = min(num_held_chars, _MAX_PARTIAL_TOKENS)
        num_certain_chars = max(len(text) - num_held_chars, self._num_emitted_chars)
        delta = text[self._num_emitted_chars : num_certain_chars]
        self._num_emitted_chars = num_certain_chars
        self.num_held_chars = max(len(text) - num_certain_chars, 0)
        if len(self._window) > _MAX_WINDOW_TOKENS:
            self._cut_window(num_pending_chars=self.num_held_chars)
        return delta

    def _start_window_at_last_clean_place(self) -> None:
        """Everything is emitted. Keep the latest tokens: decoders may treat a text's first token differently."""
        self._window = self._window[self._num_clean_tokens :]
        self._num_clean_tokens = len(self._window)
        self._num_emitted_chars = len(self._decode(self._window))
        self._num_partial_tokens = 0

    def _cut_window(self, num_pending_chars: int) -> None:
        self._window = self._window[-_KEPT_WINDOW_TOKENS:]
        self._num_clean_tokens = 0
        self._num_emitted_chars = max(len(self._decode(self._window)) - num_pending_chars, 0)

    def _decode(self, token_ids: Sequence[int]) -> str:
        # Special tokens that are skipped never enter the window.
        return self._decoder.decode(token_ids, skip_special=False)


class ByteDetokenizer:
    """As IncrementalDetokenizer, for tokenizers whose tokens are bytes: a look-up each, nothing is decoded twice."""

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._utf8 = _new_utf8_decoder(errors="replace")
        self._is_inside_character = False

    def add(self, token_ids: Sequence[int]) -> str:
        data = b"".join([self._token_bytes[token_id] for token_id in token_ids])
        if not self._is_inside_character:
            try:
                return data.decode()  # nearly always: whole characters
            except UnicodeDecodeError:
                pass
        text = self._utf8.decode(data)
        self._is_inside_character = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """The text still held back, when no token will follow. Ends the stream: later tokens start a new one."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._is_inside_character = False
        return text


def detokenizer_of(decoder: Decoder) -> Detokenizer:
    """The cheapest that is exact; special tokens are no text."""
    token_bytes = decoder.token_bytes
    return IncrementalDetokenizer(decoder) if token_bytes is None else ByteDetokenizer(token_bytes)
