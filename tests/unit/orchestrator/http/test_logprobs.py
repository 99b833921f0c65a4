"""What is told of each token, in the shapes of OpenAI's two APIs."""

from __future__ import annotations

import pytest

from orchestrator.answers.output import OutputChunk
from orchestrator.http.logprobs import ChatLogprobs, CompletionLogprobs, CompletionLogprobsWriter, chat_logprobs
from pilotfish.testing.byte_tokenizer import byte_tokenizer, byte_vocabulary
from pilotfish.types import FinishReason, TokenLogprobs, TokenOrigin

TOKENS = byte_vocabulary()
A, B, C = (TOKENS[letter] for letter in (b"a", b"b", b"c"))
END = 0


def chunk(*tokens: tuple[int, float, dict[int, float]]) -> OutputChunk:
    """Of (token, its log-probability, those of the likeliest)."""
    return OutputChunk(
        text="",
        token_ids=tuple(token_id for token_id, _, _ in tokens),
        origins=(TokenOrigin.PLAIN,) * len(tokens),
        logprobs=tuple(TokenLogprobs(logprob, tuple(top), tuple(top.values())) for _, logprob, top in tokens),
        round_draft_tokens=(0,) * len(tokens),
        num_accepted_tokens=0,
        finish_reason=FinishReason.LENGTH,
        stopped_by="",
    )


def completion(*tokens: tuple[int, float, dict[int, float]]) -> CompletionLogprobs:
    made = CompletionLogprobsWriter(byte_tokenizer(), 0).add(chunk(*tokens))
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


def test_a_chat_tells_the_chosen_token_beside_the_likeliest() -> None:
    (item,) = chat((C, -7.0, {A: -0.5, B: -1.0})).content
    assert (item.token, item.logprob) == ("c", -7.0)
    assert [(top.token, top.logprob) for top in item.top_logprobs] == [("a", -0.5), ("b", -1.0)]
