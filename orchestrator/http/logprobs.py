"""Log-probabilities in the shapes of OpenAI's two APIs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from orchestrator.answers.output import OutputChunk
from pilotfish.models.token_offsets import token_offsets_of
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.types import TokenLogprobs


class TopLogprob(msgspec.Struct):
    """One of the likeliest tokens at a place."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(msgspec.Struct):
    """A token of the answer."""

    token: str
    logprob: float
    bytes: list[int] | None
    """None where the tokenizer's tokens are not bytes."""
    top_logprobs: list[TopLogprob]
    """The likeliest tokens, as many as were asked for, whether or not the chosen one, told above, is among them."""


class ChatLogprobs(msgspec.Struct):
    """Of a chat completion: one element for every output token, the one that ended the answer included."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Of a completion: parallel lists, one element for every output token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    """The likeliest tokens and the chosen one: with `logprobs: n`, n or n + 1 entries."""
    text_offset: list[int]
    """Where the token begins in the text, in characters; within a character of several tokens, where that begins."""


def chat_logprobs(chunk: OutputChunk, tokenizer: Tokenizer) -> ChatLogprobs | None:
    """Of a chunk; None where none were asked for."""
    if not chunk.logprobs:
        return None
    content = []
    for token_id, logprobs in zip(chunk.token_ids, chunk.logprobs, strict=True):
        top = [
            TopLogprob(_text(tokenizer, top_id), logprob, _bytes(tokenizer, top_id))
            for top_id, logprob in zip(logprobs.top_token_ids, logprobs.top_logprobs, strict=True)
        ]
        content.append(TokenLogprob(_text(tokenizer, token_id), logprobs.logprob, _bytes(tokenizer, token_id), top))
    return ChatLogprobs(content)


class CompletionLogprobsWriter:
    """Tells the log-probabilities of one completion as its chunks come.

    A token is told once the text has come to its beginning: before that a stop string may still cut the text off in
    front of it, and then it begins at the text's end.
    """

    def __init__(self, tokenizer: Tokenizer, text_offset: int) -> None:
        """text_offset: how long the text is that stands before the answer, in characters."""
        self._tokenizer = tokenizer
        self._token_offsets = token_offsets_of(tokenizer)
        self._begin = self._end = text_offset
        """Of the answer's text, as far as it is told."""
        self._waiting: list[tuple[int, TokenLogprobs, int]] = []
        """Tokens with their offsets."""

    def add(self, chunk: OutputChunk) -> CompletionLogprobs | None:
        """What can be told now; None where none were asked for, and while nothing can."""
        self._end += len(chunk.text)
        if chunk.logprobs:
            offsets = self._token_offsets.add(chunk.token_ids)
            for token_id, logprobs, offset in zip(chunk.token_ids, chunk.logprobs, offsets, strict=True):
                self._waiting.append((token_id, logprobs, self._begin + offset))
        if chunk.finish_reason is not None:
            told, self._waiting = self._waiting, []
        else:
            num_told = bisect_right(self._waiting, self._end, key=lambda entry: entry[2])
            told, self._waiting = self._waiting[:num_told], self._waiting[num_told:]
        return self._logprobs(told) if told else None

    def _logprobs(self, told: Sequence[tuple[int, TokenLogprobs, int]]) -> CompletionLogprobs:
        return CompletionLogprobs(
            tokens=[_text(self._tokenizer, token_id) for token_id, _, _ in told],
            token_logprobs=[logprobs.logprob for _, logprobs, _ in told],
            top_logprobs=[_likeliest(self._tokenizer, token_id, logprobs) for token_id, logprobs, _ in told],
            text_offset=[min(offset, self._end) for _, _, offset in told],
        )


def _likeliest(tokenizer: Tokenizer, token_id: int, logprobs: TokenLogprobs) -> dict[str, float]:
    """The likeliest tokens, descending, and the chosen one, which may be less likely than all of them."""
    likeliest = {
        _text(tokenizer, top_id): logprob
        for top_id, logprob in zip(logprobs.top_token_ids, logprobs.top_logprobs, strict=True)
    }
    return {**likeliest, _text(tokenizer, token_id): logprobs.logprob}


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode([token_id], skip_special=False)


def _bytes(tokenizer: Tokenizer, token_id: int) -> list[int] | None:
    token_bytes = tokenizer.token_bytes
    return None if token_bytes is None else list(token_bytes[token_id])
