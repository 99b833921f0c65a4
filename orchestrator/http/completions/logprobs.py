"""Log-probabilities in the shapes of OpenAI's two APIs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from orchestrator.answers.output import OutputChunk
from pilotfish.models.tokens.detokenizer import TokenOffsets
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import TokenLogprobs


class TopLogprob(msgspec.Struct):
    """A token at a place, such as one of the likeliest."""

    token: str
    """The token's text; bytes that are no characters are written as OpenAI writes them: `\\xf0\\x9f`."""
    logprob: float
    bytes: list[int]
    """What it adds to the text; those of all tokens join to it."""


class TokenLogprob(TopLogprob):
    """A token of the answer."""

    top_logprobs: list[TopLogprob]
    """The likeliest tokens, as many as were asked for, whether or not the chosen one is among them."""


class ChatLogprobs(msgspec.Struct):
    """A chat completion's: one element for every output token, the one that ended the answer included."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """A completion's: parallel lists, one element for every output token; before them those of an echoed prompt."""

    tokens: list[str]
    """The tokens' texts; bytes that are no characters are written as OpenAI writes them: `bytes:\\xf0\\x9f`."""
    token_logprobs: list[float | None]
    """Each token's log-probability; null: it is a prompt's first token."""
    top_logprobs: list[dict[str, float] | None]
    """The likeliest tokens and the chosen one: with `logprobs: n`, n or n + 1 entries."""
    text_offset: list[int]
    """Where the token begins in the text, in characters; within a character of several tokens, where that begins."""


def chat_logprobs(chunk: OutputChunk, tokenizer: Tokenizer) -> ChatLogprobs | None:
    """A chunk's log-probabilities; None where none were asked for."""
    if not chunk.logprobs:
        return None
    content = []
    for token_id, logprobs in zip(chunk.token_ids, chunk.logprobs, strict=True):
        top = [
            TopLogprob(_token(tokenizer, top_id), logprob, list(tokenizer.bytes_of(top_id)))
            for top_id, logprob in zip(logprobs.top_token_ids, logprobs.top_logprobs, strict=True)
        ]
        token = _token(tokenizer, token_id)
        content.append(TokenLogprob(token, logprobs.logprob, list(tokenizer.bytes_of(token_id)), top))
    return ChatLogprobs(content)


class PromptLogprob(msgspec.Struct):
    """A token at a place of the prompt."""

    logprob: float
    rank: int | None
    """The token's rank, 1 for the likeliest; null beyond those that were asked for."""
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""Log-probabilities by token id, at each place; the first has none."""


def prompt_logprobs(
    chunk: OutputChunk, prompt_token_ids: Sequence[int], tokenizer: Tokenizer, num_logprobs: int
) -> PromptLogprobs | None:
    """The prompt's log-probabilities in vLLM's shape; None where the target returns none."""
    if not chunk.prompt_logprobs:
        return None
    places: PromptLogprobs = []
    for token_id, score in zip(prompt_token_ids, chunk.prompt_logprobs, strict=True):
        if score is None:
            places.append(None)
            continue
        score = score.first(num_logprobs)
        ranks = {top_id: index + 1 for index, top_id in enumerate(score.top_token_ids)}
        logprobs = {token_id: score.logprob, **dict(zip(score.top_token_ids, score.top_logprobs, strict=True))}
        places.append(
            {
                each: PromptLogprob(logprob, ranks.get(each), _token(tokenizer, each))
                for each, logprob in logprobs.items()
            }
        )
    return places


class CompletionLogprobsWriter:
    """Writes the log-probabilities of one completion as its chunks come.

    A token is written once the text has come to its beginning: before that a stop string may still cut the text off in
    front of it, and then it begins at the text's end.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        echo: str = "",
        prompt_token_ids: Sequence[int] = (),
        *,
        num_logprobs: int | None = 0,
        skip_special: bool = True,
    ) -> None:
        """echo: the text that stands before the answer. prompt_token_ids: its tokens, where it is scored, with
        num_logprobs of the likeliest for each; None: they are left out."""
        self._tokenizer = tokenizer
        self._echo = echo
        self._prompt_token_ids = prompt_token_ids
        self._num_logprobs = num_logprobs
        self._token_offsets = TokenOffsets(tokenizer.bytes_by_token(skip_special=skip_special))
        self._begin = self._end = len(echo)
        """Positions in the text where the answer begins, and up to which it has come."""
        self._waiting: list[tuple[int, TokenLogprobs | None, int]] = []
        """Tokens with their offsets."""

    def add(self, chunk: OutputChunk) -> CompletionLogprobs | None:
        """What can be written now; None where none were asked for, and while nothing can."""
        self._end += len(chunk.text)
        if self._echo and chunk.prompt_logprobs and self._num_logprobs is not None:
            scores = [score and score.first(self._num_logprobs) for score in chunk.prompt_logprobs]
            offsets = _prompt_offsets(self._tokenizer, self._prompt_token_ids, self._echo)
            self._waiting.extend(zip(self._prompt_token_ids, scores, offsets, strict=True))
        if chunk.logprobs:
            offsets = self._token_offsets.add(chunk.token_ids)
            for token_id, logprobs, offset in zip(chunk.token_ids, chunk.logprobs, offsets, strict=True):
                self._waiting.append((token_id, logprobs, self._begin + offset))
        if chunk.finish_reason is not None:
            ready, self._waiting = self._waiting, []
        else:
            num_ready = bisect_right(self._waiting, self._end, key=lambda entry: entry[2])
            ready, self._waiting = self._waiting[:num_ready], self._waiting[num_ready:]
        return self._logprobs(ready) if ready else None

    def _logprobs(self, ready: Sequence[tuple[int, TokenLogprobs | None, int]]) -> CompletionLogprobs:
        return CompletionLogprobs(
            tokens=[_completion_token(self._tokenizer, token_id) for token_id, _, _ in ready],
            token_logprobs=[None if logprobs is None else logprobs.logprob for _, logprobs, _ in ready],
            top_logprobs=[
                None if logprobs is None else _likeliest(self._tokenizer, token_id, logprobs)
                for token_id, logprobs, _ in ready
            ],
            text_offset=[min(offset, self._end) for _, _, offset in ready],
        )


def _prompt_offsets(tokenizer: Tokenizer, token_ids: Sequence[int], text: str) -> list[int]:
    """Where each begins in the prompt's text. What the tokenizer has put before that begins with it."""
    offsets = TokenOffsets(tokenizer.bytes_by_token(skip_special=False)).add(token_ids)
    decoded = tokenizer.decode(token_ids, skip_special=False)
    num_added = len(decoded) - len(text) if decoded.endswith(text) else 0
    return [min(max(0, offset - num_added), len(text)) for offset in offsets]


def _likeliest(tokenizer: Tokenizer, token_id: int, logprobs: TokenLogprobs) -> dict[str, float]:
    """The likeliest tokens, descending, and the chosen one, which may be less likely than all of them.

    Tokens may have the same text, such as none: the chosen one has it then, else the likeliest, and the others are
    `token_id:N`, as vLLM calls tokens by their ids.
    """
    names = {token_id: _completion_token(tokenizer, token_id)}
    for top_id in logprobs.top_token_ids:
        text = _completion_token(tokenizer, top_id)
        names.setdefault(top_id, f"token_id:{top_id}" if text in names.values() else text)
    top = zip(logprobs.top_token_ids, logprobs.top_logprobs, strict=True)
    return {**{names[top_id]: logprob for top_id, logprob in top}, names[token_id]: logprobs.logprob}


def _completion_token(tokenizer: Tokenizer, token_id: int) -> str:
    return _token(tokenizer, token_id, partial="bytes:")


def _token(tokenizer: Tokenizer, token_id: int, *, partial: str = "") -> str:
    """The token by itself. partial: stands before bytes that are no characters, which are written as `\\xf0\\x9f`."""
    if token_id in tokenizer.special_token_ids:
        return tokenizer.decode([token_id], skip_special=False)
    data = tokenizer.bytes_of(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return partial + "".join(f"\\x{byte:02x}" for byte in data)
