"""Completions, whole and as events: the text, and log-probabilities whose offsets point into it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.answers.chunk_writer import ChunkBuffer
from orchestrator.answers.output import AnswerText, OutputChunk
from orchestrator.http.completions.answers import Finished, Sample
from orchestrator.http.completions.completion_response import CompletionFormat
from orchestrator.http.completions.envelope import Envelope
from orchestrator.requests.prompt import TextPrompt
from orchestrator.requests.request import GenerationOptions, GenerationRequest, SpeculationOptions
from pilotfish.messages import Verdict
from pilotfish.types import FinishReason, SamplingParams, TokenLogprobs
from tests.support.byte_tokenizer import VOCAB_SIZE, byte_tokenizer, byte_vocabulary
from tests.support.output import request_report

ENVELOPE = Envelope(id="cmpl-1", created=5, model="toy", system_fingerprint="fp_1")
SAMPLE = Sample(0, 0, TextPrompt("é: "), GenerationOptions(sampling=SamplingParams()))
TOKENS = byte_vocabulary()
TOKENIZER = byte_tokenizer()
END = 0


def chunks_of(token_ids: list[int], sizes: list[int], stop: tuple[str, ...] = ()) -> list[OutputChunk]:
    """What becomes of tokens that come in verdicts of these sizes (used again and again), up to a stop."""
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(stop_token_ids=(END,)),
        speculation=SpeculationOptions(),
        num_speculative_tokens=0,
        stop=stop,
    )
    output, chunks, start = AnswerText(TOKENIZER, request), [], 0
    for size in itertools.cycle(sizes):
        part = tuple(token_ids[start : start + size])
        start += size
        if END in part:
            part, finish_reason = part[: part.index(END) + 1], FinishReason.STOP
        else:
            finish_reason = FinishReason.LENGTH if start >= len(token_ids) else None
        logprobs = tuple(TokenLogprobs(-token_id / 8, (5, 6), (-0.25, -0.5)) for token_id in part)
        chunks.append(output.push(Verdict(1, 1, 0, 0, part, logprobs=logprobs, finish_reason=finish_reason)))
        if chunks[-1].finish_reason is not None:
            return chunks
    raise AssertionError


def whole(chunks: list[OutputChunk], **options: Any) -> dict[str, Any]:
    buffer = ChunkBuffer(0)
    for chunk in chunks:
        buffer.add(chunk)
    document = CompletionFormat(ENVELOPE, TOKENIZER, **options).document(
        [Finished(SAMPLE, buffer.take(), request_report())]
    )
    return msgspec.to_builtins(document)["choices"][0]


def streamed(chunks: list[OutputChunk], **options: Any) -> list[dict[str, Any]]:
    maker = CompletionFormat(ENVELOPE, TOKENIZER, **options).choice_events(SAMPLE)
    data = b"".join(maker.chunk(chunk) for chunk in chunks[:-1]) + maker.end(chunks[-1], request_report())
    events = [json.loads(event.removeprefix("data: ")) for event in data.decode().split("\n\n") if event]
    return [event["choices"][0] for event in events]


def joined(events: list[dict[str, Any]]) -> tuple[str, dict[str, list[Any]]]:
    pieces = [event["logprobs"] for event in events if event["logprobs"] is not None]
    logprobs = {key: [value for piece in pieces for value in piece[key]] for key in pieces[0]}
    return "".join(event["text"] for event in events), logprobs


def ids(*tokens: bytes) -> list[int]:
    return [TOKENS[token] for token in tokens]


@pytest.mark.parametrize(
    ("token_ids", "stop", "text", "offsets"),
    [
        (ids(b"a", b"\xf0\x9f", b"\x98\x80", b"b"), (), "a😀b", [0, 1, 1, 2]),
        (ids(b"\xe4", b"\xb8", b"\xad", b"\xe2\x82", b"\xac", b" a"), (), "中€ a", [0, 0, 0, 1, 1, 2]),
        (ids(b"\xf0\x9f", b"\x98", b"\x80\xf0", b"\x9f", b"\x98\x80"), (), "😀😀", [0, 0, 0, 1, 1]),
        (ids(b"\xf0\x9f", b"b", b"\x80"), (), "\ufffdb\ufffd", [0, 1, 2]),
        ([*ids(b"a", b"\xf0\x9f"), END], (), "a\ufffd", [0, 1, 1]),
        ([*ids(b"a", b"b"), END], ("x",), "ab", [0, 1, 2]),
        ([1, *ids(b"a"), 2, VOCAB_SIZE - 1, *ids(b"b")], (), "ab", [0, 0, 1, 1, 1]),
        (ids(b"a", b"x", b"y", b"z", b"b"), ("xyz",), "a", [0, 1, 1, 1]),
        (ids(b"a", b"\xf0\x9f", b"\x98\x80", b"b", b"c"), ("😀b",), "a", [0, 1, 1, 1]),
        (ids(b"a", b"x", b"y", b"a", b"b"), ("xyz",), "axyab", [0, 1, 2, 3, 4]),
        (ids(b"\xf0\x9f", b"\x98\x80", b"x"), ("x",), "😀", [0, 0, 1]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 10])
def test_offsets_point_into_the_text(
    token_ids: list[int], stop: tuple[str, ...], text: str, offsets: list[int], size: int
) -> None:
    chunks = chunks_of(token_ids, [size], stop)
    choice = whole(chunks)
    assert (choice["text"], choice["logprobs"]["text_offset"]) == (text, offsets)
    assert joined(streamed(chunks)) == (text, choice["logprobs"])
    echoed = whole(chunks, echoed=["é: "])
    assert echoed["text"] == f"é: {text}"
    assert echoed["logprobs"]["text_offset"] == [3 + offset for offset in offsets]
    assert joined(streamed(chunks, echoed=["é: "])) == (f"é: {text}", echoed["logprobs"])


@given(
    token_ids=st.lists(
        st.sampled_from(ids(b"a", b"b", b"ab", b"\xf0\x9f", b"\x98\x80", b"\x80\xf0", b"\x9f", b"\xe2\x82", b"\xac"))
        | st.integers(1, VOCAB_SIZE - 1),
        min_size=1,
        max_size=40,
    ),
    ends=st.booleans(),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    stop=st.lists(st.sampled_from(["ab", "aba", "b😀", "😀", "\ufffd", "€a"]), max_size=3),
    echo=st.sampled_from(["", "é: "]),
)
def test_any_answer(token_ids: list[int], ends: bool, sizes: list[int], stop: list[str], echo: str) -> None:
    chunks = chunks_of(token_ids + [END] * ends, sizes, tuple(stop))
    choice = whole(chunks, echoed=[echo])
    text, logprobs = choice["text"], choice["logprobs"]
    assert joined(streamed(chunks, echoed=[echo])) == (text, logprobs)
    kept = [token_id for chunk in chunks for token_id in chunk.token_ids]
    assert len(logprobs["tokens"]) == len(kept)
    offsets = logprobs["text_offset"]
    assert offsets == sorted(offsets)
    for token_id, offset in zip(kept, offsets, strict=True):
        shown = TOKENIZER.decode([token_id])
        assert len(echo) <= offset <= len(text)
        # Of a token that a stop cuts off its beginning is left, or nothing.
        assert "\ufffd" in shown or shown.startswith(text[offset : offset + len(shown)])
