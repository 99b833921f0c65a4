"""Chunks on their way to the client, joined while they wait: a message costs more than the tokens in it."""

from __future__ import annotations

from orchestrator.answers.output import OutputChunk


class ChunkBuffer:
    """Collects chunks until a message is due. The first one always is, so that the first token never waits."""

    def __init__(self, interval_tokens: int) -> None:
        """interval_tokens: fewer are not sent alone, but at the answer's begin and end."""
        self._interval_tokens = interval_tokens
        self._chunks: list[OutputChunk] = []
        self._num_tokens = 0
        self._num_tokens_due = 1

    def add(self, chunk: OutputChunk) -> None:
        self._chunks.append(chunk)
        self._num_tokens += len(chunk.token_ids)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def is_due(self, *, more_waits: bool) -> bool:
        """Whether to send what is there. more_waits: the next chunk can be had at once."""
        is_last = bool(self._chunks) and self._chunks[-1].finish_reason is not None
        return is_last or (self._num_tokens >= self._num_tokens_due and not more_waits)

    def take(self) -> OutputChunk:
        """All chunks as one; there must be some."""
        chunks, self._chunks = self._chunks, []
        self._num_tokens, self._num_tokens_due = 0, self._interval_tokens
        return chunks[0] if len(chunks) == 1 else _join(chunks)


def _join(chunks: list[OutputChunk]) -> OutputChunk:
    last = chunks[-1]
    return OutputChunk(
        text="".join(chunk.text for chunk in chunks),
        token_ids=tuple(token_id for chunk in chunks for token_id in chunk.token_ids),
        origins=tuple(origin for chunk in chunks for origin in chunk.origins),
        logprobs=tuple(logprobs for chunk in chunks for logprobs in chunk.logprobs),
        round_draft_tokens=tuple(number for chunk in chunks for number in chunk.round_draft_tokens),
        num_accepted_tokens=sum(chunk.num_accepted_tokens for chunk in chunks),
        finish_reason=last.finish_reason,
        stopped_by=last.stopped_by,
    )
