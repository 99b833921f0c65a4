"""Generated answers through everything between a verdict and the client: detokenising, stop strings, tool calls and
log-probabilities, whole and streamed.

An answer is made of pieces of calls, marks, JSON with escapes, characters of several bytes, broken UTF-8 and special
tokens, and cut into tokens at random; its tokens come in verdicts, and these in chunks, of random sizes.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import shared.checkout  # noqa: F401  # finds tests.support
from hypothesis import strategies as st

from fuzz.answer_oracles import check_chat, check_completion, check_text
from fuzz.answer_texts import ANSWERS, FRAGMENTS
from orchestrator.answers.chunk_buffer import ChunkBuffer
from orchestrator.answers.output import OutputChunk, OutputText
from orchestrator.http.completions.answers import Finished, Sample
from orchestrator.http.completions.chat_format import ChatFormat
from orchestrator.http.completions.completion_response import CompletionFormat
from orchestrator.http.completions.envelope import Envelope
from orchestrator.requests.prompt import TextPrompt
from orchestrator.requests.request import GenerationOptions, GenerationRequest, SpeculationOptions
from orchestrator.requests.tools import tool_use
from pilotfish.messages import Verdict
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.types import FinishReason, SamplingParams, TokenLogprobs
from tests.support.byte_tokenizer import byte_tokenizer, byte_vocabulary, word_tokenizer, word_vocabulary

_STOP_STRINGS = ("ab", "</tool_call>", '"}', "😀", "\ufffd", "\n", "<tool", "中a")
_NUM_LIKELIEST = 3
_MAX_TOKEN_BYTES = 9
_ECHO = "é😀: "


class AnswersSurface:
    """An input is the bytes of an answer, and how everything is cut."""

    name = "answers"
    inputs = st.tuples(ANSWERS, st.randoms(use_true_random=True))

    def __init__(self) -> None:
        self._makers = _makers()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def run(self, data: tuple[bytes, random.Random]) -> set[str]:
        text, chance = data
        maker = chance.choice(self._makers)
        token_ids = maker.token_ids(text, chance)
        whole, faults = _check(maker.tokenizer, token_ids, chance)
        if faults:
            raise AssertionError(f"tokens {token_ids}: " + "\n".join(faults))
        broken = "broken" if "\ufffd" in whole.text else "whole"
        return {f"{broken} characters, stopped by {whole.stopped_by if whole.stopped_by in _STOP_STRINGS else 'none'}"}


@dataclass(frozen=True)
class Maker:
    """Cuts text into tokens of one tokenizer."""

    tokenizer: Tokenizer
    vocabulary: Mapping[bytes, Sequence[int]]
    """All tokens of the same bytes."""

    def token_ids(self, data: bytes, chance: random.Random) -> list[int]:
        """Of an answer of these bytes."""
        token_ids, position = [], 0
        while position < len(data):
            if chance.random() < 0.02:
                token_ids.append(chance.choice((1, 2, self.tokenizer.vocab_size - 1)))  # special, and none at all
            longest = data[position : position + _MAX_TOKEN_BYTES]
            fitting = [size for size in range(1, len(longest) + 1) if longest[:size] in self.vocabulary]
            size = chance.choice(fitting)
            token_ids.append(chance.choice(self.vocabulary[longest[:size]]))
            position += size
        return token_ids or [1]


def _makers() -> list[Maker]:
    chance = random.Random(1)
    further: list[bytes] = []
    for _ in range(600):  # parts of what answers are made of, and of two such next to each other
        data = b"".join(chance.choices(FRAGMENTS, k=2))
        begin = chance.randrange(len(data))
        further.append(data[begin : begin + chance.randint(2, _MAX_TOKEN_BYTES)])
    words: dict[bytes, list[int]] = defaultdict(list)
    for word, token_id in word_vocabulary().items():
        words[word.replace("▁", " ").encode() if isinstance(word, str) else word].append(token_id)
    tokens = {data: [token_id] for data, token_id in byte_vocabulary(further).items()}
    return [Maker(byte_tokenizer(further), tokens), Maker(word_tokenizer(), words)]


def _check(tokenizer: Tokenizer, token_ids: Sequence[int], chance: random.Random) -> tuple[OutputChunk, list[str]]:
    """The whole answer, and what is wrong with it."""
    stop = tuple(chance.sample(_STOP_STRINGS, chance.choice((0, 0, 1, 3))))
    stop_token_ids = (0, chance.choice(token_ids)) if chance.random() < 0.2 else (0,)
    if chance.random() < 0.5:
        token_ids = [*token_ids, 0]
    chunks = _chunks(tokenizer, token_ids, stop, stop_token_ids, chance)
    whole = _join(chunks)
    streamed = _in_groups(chunks, chance)
    ended = SimpleNamespace(**_REPORT, finish_reason=whole.finish_reason, stopped_by=whole.stopped_by)
    options = GenerationOptions(sampling=SamplingParams(stop_token_ids=stop_token_ids), stop=stop)
    sample = Sample(0, 0, TextPrompt("x"), options)

    chat = ChatFormat(_ENVELOPE, tokenizer, tools=tool_use(_TOOLS, "auto"))
    document = msgspec.json.decode(msgspec.json.encode(chat.document([Finished(sample, whole, ended)])))
    choice = document["choices"][0]
    faults = check_text(tokenizer, token_ids, stop_token_ids, stop, whole)
    faults += check_chat(tokenizer, whole, choice, _events(chat.choice_events(sample), streamed, ended))

    echo = chance.choice(("", _ECHO))
    completion = CompletionFormat(_ENVELOPE, tokenizer, echoed=[echo])
    document = msgspec.json.decode(msgspec.json.encode(completion.document([Finished(sample, whole, ended)])))
    events = _events(completion.choice_events(sample), streamed, ended)
    return whole, faults + check_completion(tokenizer, whole, echo, document["choices"][0], events)


def _chunks(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    stop: tuple[str, ...],
    stop_token_ids: tuple[int, ...],
    chance: random.Random,
) -> list[OutputChunk]:
    """What becomes of tokens in verdicts of any size, up to the end."""
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(stop_token_ids=stop_token_ids),
        speculation=SpeculationOptions(),
        num_speculative_tokens=0,
        stop=stop,
    )
    output, chunks, start = OutputText(tokenizer, request), [], 0
    while True:
        size = chance.choice((1, 1, 2, 5, 9))
        part = tuple(token_ids[start : start + size])
        start += size
        finish_reason = FinishReason.LENGTH if start >= len(token_ids) else None
        end = next((index for index, token_id in enumerate(part) if token_id in stop_token_ids), None)
        if end is not None:
            part, finish_reason = part[: end + 1], FinishReason.STOP
        logprobs = tuple(_logprobs(token_id, tokenizer.vocab_size, chance) for token_id in part)
        chunks.append(output.push(Verdict(1, 1, 0, 0, part, logprobs=logprobs, finish_reason=finish_reason)))
        if chunks[-1].finish_reason is not None:
            return chunks


def _logprobs(token_id: int, vocab_size: int, chance: random.Random) -> TokenLogprobs:
    likeliest = chance.sample(range(vocab_size), _NUM_LIKELIEST)
    if chance.random() < 0.7 and token_id not in likeliest:
        likeliest[chance.randrange(_NUM_LIKELIEST)] = token_id
    values = (-0.5, -1.0, -2.0)
    chosen = values[likeliest.index(token_id)] if token_id in likeliest else -9.0
    return TokenLogprobs(chosen, tuple(likeliest), values)


def _join(chunks: Sequence[OutputChunk]) -> OutputChunk:
    buffer = ChunkBuffer(0)
    for chunk in chunks:
        buffer.add(chunk)
    return buffer.take()


def _in_groups(chunks: Sequence[OutputChunk], chance: random.Random) -> list[OutputChunk]:
    """As they reach a client that does not read all the time."""
    groups, start = [], 0
    while start < len(chunks):
        size = chance.choice((1, 1, 1, 2, 4))
        groups.append(_join(chunks[start : start + size]))
        start += size
    return groups


def _events(maker: Any, chunks: Sequence[OutputChunk], ended: Any) -> list[dict[str, Any]]:
    data = b"".join(maker.chunk(chunk) for chunk in chunks[:-1]) + maker.end(chunks[-1], ended)
    events = [json.loads(event.removeprefix("data: ")) for event in data.decode().split("\n\n") if event]
    return [event["choices"][0] for event in events]


_ENVELOPE = Envelope(id="x-1", created=5, model="toy", system_fingerprint="fp_1")
_TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
_REPORT = dict.fromkeys(
    (
        *("num_prompt_tokens", "num_output_tokens", "num_cached_tokens"),
        *("seed", "queue_time_ns", "time_to_first_token_ns", "total_time_ns"),
    ),
    0,
) | {
    "speculation": SpeculationStats(),
    "emulated": False,
}
