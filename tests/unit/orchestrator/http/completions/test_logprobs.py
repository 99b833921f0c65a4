"""What is told of each token, in the shapes of OpenAI's two APIs."""

from __future__ import annotations

import pytest

from orchestrator.answers.output import OutputChunk
from orchestrator.http.completions.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    CompletionLogprobsWriter,
    chat_logprobs,
)
from pilotfish.types import TokenLogprobs
from tests.support.byte_tokenizer import VOCAB_SIZE, byte_tokenizer, byte_vocabulary
from tests.support.output import output_chunk

TOKENS = byte_vocabulary()
A, B, C = (TOKENS[letter] for letter in (b"a", b"b", b"c"))
END = 0


def chunk(*tokens: tuple[int, float, dict[int, float]]) -> OutputChunk:
    """Of (token, its log-probability, those of the likeliest)."""
    return output_chunk(
        token_ids=tuple(token_id for token_id, _, _ in tokens),
        logprobs=tuple(TokenLogprobs(logprob, tuple(top), tuple(top.values())) for _, logprob, top in tokens),
    )


def completion(*tokens: tuple[int, float, dict[int, float]]) -> CompletionLogprobs:
    made = CompletionLogprobsWriter(byte_tokenizer()).add(chunk(*tokens))
    assert made is not None
    return made


def chat(*tokens: tuple[int, float, dict[int, float]]) -> ChatLogprobs:
    made = chat_logprobs(chunk(*tokens), byte_tokenizer())
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ((A, -0.5, {A: -0.5, B: -1.0}), {"a": -0.5, "b": -1.0}),
        ((B, -1.0, {A: -0.5, B: -1.0}), {"a": -0.5, "b": -1.0}),
        ((C, -7.0, {A: -0.5, B: -1.0}), {"a": -0.5, "b": -1.0, "c": -7.0}),
        ((END, -7.0, {A: -0.5}), {"a": -0.5, "<|end|>": -7.0}),
        ((A, -0.5, {}), {"a": -0.5}),
    ],
)
def test_the_chosen_token_is_always_among_a_completions_likeliest(token, expected: dict[str, float]) -> None:
    made = completion(token)
    assert made.top_logprobs == [expected]
    assert list(made.top_logprobs[0]) == list(expected), "descending"
    assert made.top_logprobs[0][made.tokens[0]] == made.token_logprobs[0]


def test_a_scored_prompt_comes_before_the_answer() -> None:
    """The token that the tokenizer has put before the prompt stands where that begins."""
    writer = CompletionLogprobsWriter(byte_tokenizer(), "ab", [END, A, B], num_logprobs=1)
    scores = (None, TokenLogprobs(-1.0, (A,), (-1.0,)), TokenLogprobs(-2.0, (A,), (-0.5,)))
    made = writer.add(output_chunk("c", token_ids=(C,), logprobs=(TokenLogprobs(-3.0),), prompt_logprobs=scores))
    assert made == CompletionLogprobs(
        tokens=["<|end|>", "a", "b", "c"],
        token_logprobs=[None, -1.0, -2.0, -3.0],
        top_logprobs=[None, {"a": -1.0}, {"a": -0.5, "b": -2.0}, {"c": -3.0}],
        text_offset=[0, 0, 1, 2],
    )


HALF, OTHER_HALF, EURO = TOKENS[b"\xf0\x9f"], TOKENS[b"\x80\xf0"], TOKENS[b"\xe2\x82"]
NO_TEXT = VOCAB_SIZE - 1, VOCAB_SIZE - 2, VOCAB_SIZE - 3


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (
            (HALF, -0.5, {HALF: -0.5, OTHER_HALF: -1.0, EURO: -2.0}),
            {r"bytes:\xf0\x9f": -0.5, r"bytes:\x80\xf0": -1.0, r"bytes:\xe2\x82": -2.0},
        ),
        ((EURO, -7.0, {HALF: -0.5, A: -1.0}), {r"bytes:\xf0\x9f": -0.5, "a": -1.0, r"bytes:\xe2\x82": -7.0}),
        (
            (A, -7.0, {NO_TEXT[0]: -0.5, NO_TEXT[1]: -1.0, NO_TEXT[2]: -2.0}),
            {"": -0.5, f"token_id:{NO_TEXT[1]}": -1.0, f"token_id:{NO_TEXT[2]}": -2.0, "a": -7.0},
        ),
        (
            (NO_TEXT[1], -1.0, {NO_TEXT[0]: -0.5, NO_TEXT[1]: -1.0}),
            {f"token_id:{NO_TEXT[0]}": -0.5, "": -1.0},
        ),
        ((NO_TEXT[1], -7.0, {NO_TEXT[0]: -0.5}), {f"token_id:{NO_TEXT[0]}": -0.5, "": -7.0}),
    ],
)
def test_no_token_of_a_completion_is_lost_to_another_of_the_same_text(token, expected: dict[str, float]) -> None:
    made = completion(token)
    assert made.top_logprobs == [expected]
    assert made.top_logprobs[0][made.tokens[0]] == made.token_logprobs[0]


def test_a_chat_tells_bytes_that_are_no_characters() -> None:
    made = chat((HALF, -0.5, {HALF: -0.5, EURO: -1.0}), (TOKENS[b"\x98\x80"], -0.5, {}), (END, -0.5, {A: -1.0}))
    assert [(item.token, item.bytes) for item in made.content] == [
        (r"\xf0\x9f", [0xF0, 0x9F]),
        (r"\x98\x80", [0x98, 0x80]),
        ("<|end|>", []),
    ]
    assert [(top.token, top.bytes) for top in made.content[0].top_logprobs] == [
        (r"\xf0\x9f", [0xF0, 0x9F]),
        (r"\xe2\x82", [0xE2, 0x82]),
    ]
    assert bytes(byte for item in made.content for byte in item.bytes).decode() == "😀"
