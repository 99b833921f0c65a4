"""Tokens to what the client sees: text, and the cut where a stop falls."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.requests.request import GenerationRequest
from pilotfish.messages import Verdict
from pilotfish.models.tokens.detokenizer import Detokenizer
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.answer import Chunk
from pilotfish.speculation.stopping import StopStringMatcher
from pilotfish.types import FinishReason, TokenLogprobs


class OutputChunk(Chunk, frozen=True, kw_only=True):
    """A chunk as the HTTP API needs it. The text of a stop is part of it only where that is asked for."""

    round_draft_tokens: tuple[int, ...]
    """For each token, how many draft tokens the round had that it came of; 0: none, it was decoded plainly."""
    num_accepted_tokens: int
    finish_reason: FinishReason | None
    stopped_by: str | int | None
    """The stop string or the token id that ended the answer."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    """An answer's first chunk only: one entry per token of the prompt, where they are wanted and known."""


def join_chunks(chunks: Sequence[OutputChunk]) -> OutputChunk:
    """Chunks of one answer that follow one another, at least one."""
    last = chunks[-1]
    if len(chunks) == 1:
        return last
    return OutputChunk(
        text="".join(chunk.text for chunk in chunks),
        token_ids=tuple(token_id for chunk in chunks for token_id in chunk.token_ids),
        origins=tuple(origin for chunk in chunks for origin in chunk.origins),
        logprobs=tuple(logprobs for chunk in chunks for logprobs in chunk.logprobs),
        round_draft_tokens=tuple(number for chunk in chunks for number in chunk.round_draft_tokens),
        num_accepted_tokens=sum(chunk.num_accepted_tokens for chunk in chunks),
        finish_reason=last.finish_reason,
        stopped_by=last.stopped_by,
        prompt_logprobs=chunks[0].prompt_logprobs,
    )


class AnswerText:
    """Detokenises one answer and looks for its stop strings."""

    def __init__(self, tokenizer: Tokenizer, request: GenerationRequest) -> None:
        self._detokenizer = Detokenizer(tokenizer.bytes_by_token(skip_special=request.skip_special_tokens))
        self._matcher = StopStringMatcher(request.stop, keeps_match=request.include_stop) if request.stop else None
        hidden = request.stop if request.skip_special_tokens else ()
        self._special_stops = {tokenizer.special_token_id(stop): stop for stop in hidden}
        """Stop strings that are special tokens, which are not in the text."""
        self._min_tokens = request.sampling.min_tokens
        """A stop string counts if it ends behind so many tokens."""
        self._num_tokens = 0
        self._includes_stop = request.include_stop
        self._stop_token_ids = frozenset(request.sampling.stop_token_ids)

    def push(self, verdict: Verdict) -> OutputChunk:
        """The chunk of a verdict, ended early where a stop string is complete."""
        if verdict.finish_reason is None and self._matcher is None:
            return OutputChunk(
                text=self._detokenizer.add(verdict.token_ids),
                token_ids=verdict.token_ids,
                origins=verdict.origins,
                logprobs=verdict.logprobs,
                round_draft_tokens=(verdict.num_draft_tokens,) * len(verdict.token_ids),
                num_accepted_tokens=verdict.num_accepted_tokens,
                finish_reason=None,
                stopped_by=None,
            )
        return self._push_to_an_end(verdict)

    def _push_to_an_end(self, verdict: Verdict) -> OutputChunk:
        """As `push`, for a verdict that may end the answer."""
        text, num_tokens, matched = self._text_of(verdict)
        finish_reason, stopped_by = verdict.finish_reason, None
        if finish_reason is not None and matched is None:
            tail, matched = self._flush()
            text += tail
            stopped_by = verdict.token_ids[-1] if finish_reason is FinishReason.STOP else None
        return OutputChunk(
            text=text,
            token_ids=verdict.token_ids[:num_tokens],
            origins=verdict.origins[:num_tokens],
            logprobs=verdict.logprobs[:num_tokens],
            round_draft_tokens=(verdict.num_draft_tokens,) * num_tokens,
            num_accepted_tokens=min(verdict.num_accepted_tokens, num_tokens),
            finish_reason=finish_reason if matched is None else FinishReason.STOP,
            stopped_by=stopped_by if matched is None else matched,
        )

    def _text_of(self, verdict: Verdict) -> tuple[str, int, str | None]:
        """(certain text, tokens kept, the stop string that appeared)."""
        token_ids = verdict.token_ids
        is_stopped = verdict.finish_reason is FinishReason.STOP and token_ids and token_ids[-1] in self._stop_token_ids
        if is_stopped and not self._includes_stop:
            token_ids = token_ids[:-1]
        if self._matcher is None:
            return self._detokenizer.add(token_ids), len(verdict.token_ids), None
        pieces: list[str] = []
        for index, token_id in enumerate(token_ids):
            text = self._detokenizer.add((token_id,))
            self._num_tokens += 1
            if token_id in self._special_stops and not self._is_too_short:
                text, stopped_by = self._end_at(self._special_stops[token_id])
                return "".join(pieces) + text, index + 1, stopped_by
            safe_text, matched = (self._matcher.pass_by(text), None) if self._is_too_short else self._matcher.push(text)
            pieces.append(safe_text)
            if matched is not None:
                return "".join(pieces), index + 1, matched
        return "".join(pieces), len(verdict.token_ids), None

    def _end_at(self, special_stop: str) -> tuple[str, str]:
        """(the rest of the text, the stop string that ends it)."""
        tail, matched = self._flush()
        if matched is not None:
            return tail, matched
        return tail + special_stop if self._includes_stop else tail, special_stop

    @property
    def _is_too_short(self) -> bool:
        return self._num_tokens <= self._min_tokens

    def _flush(self) -> tuple[str, str | None]:
        """(the text still held back, a stop string completed by it)."""
        tail = self._detokenizer.flush()
        if self._matcher is None:
            return tail, None
        if self._is_too_short:
            return self._matcher.pass_by(tail) + self._matcher.flush(), None
        safe_text, matched = self._matcher.push(tail)
        if matched is not None:
            return safe_text, matched
        return safe_text + self._matcher.flush(), None
