"""Log-probabilities in the shapes of OpenAI's two APIs."""

from __future__ import annotations

import msgspec

from orchestrator.answers.output import OutputChunk
from pilotfish.models.tokenizer import Tokenizer


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


class ChatLogprobs(msgspec.Struct):
    """Of a chat completion: one element for every output token, the one that ended the answer included."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Of a completion: parallel lists, one element for every output token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]
    """Where the token begins in the text, in characters."""


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


def completion_logprobs(chunk: OutputChunk, tokenizer: Tokenizer, offset: int) -> CompletionLogprobs | None:
    """Of a chunk whose first token begins at `offset`; None where none were asked for."""
    if not chunk.logprobs:
        return None
    tokens = [_text(tokenizer, token_id) for token_id in chunk.token_ids]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    top = [
        {
            _text(tokenizer, top_id): logprob
            for top_id, logprob in zip(logprobs.top_token_ids, logprobs.top_logprobs, strict=True)
        }
        for logprobs in chunk.logprobs
    ]
    return CompletionLogprobs(
        tokens, [logprobs.logprob for logprobs in chunk.logprobs], top if any(top) else None, offsets
    )


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode([token_id], skip_special=False)


def _bytes(tokenizer: Tokenizer, token_id: int) -> list[int] | None:
    token_bytes = tokenizer.token_bytes
    return None if token_bytes is None else list(token_bytes[token_id])
