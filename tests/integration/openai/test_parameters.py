"""Every parameter through OpenAI's own client, streamed and not, with speculation on and off: equal outputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import openai
import pytest

MODEL = ""
"""The served one."""
MESSAGES = [{"role": "system", "content": "swim"}, {"role": "user", "content": "ab ab ab ab"}]
ON = {"speculation": {"mode": "on", "proposer": "ngram", "num_speculative_tokens": 4}}
OFF = {"speculation": {"mode": "off"}}

COMMON: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {},
    "temperature": {"temperature": 0.3},
    "top_p": {"top_p": 0.5},
    "top_k": {"extra_body": {"top_k": 3}},
    "min_p": {"extra_body": {"min_p": 0.2}},
    "repetition_penalty": {"extra_body": {"repetition_penalty": 1.3}},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 1.5},
    "logit_bias": {"logit_bias": {"40": 8.0, "41": -100}},
    "stop": {"stop": ["0L", "a", "e", "o", "x"]},
    "stop_token_ids": {"extra_body": {"stop_token_ids": [*range(15, 50)]}},
    "ignore_eos": {"extra_body": {"ignore_eos": True}},
    "n": {"n": 3},
    "rejection": {"temperature": 0, "extra_body": {"speculation": {"acceptance": "rejection"}}},
}
CHAT = {
    **COMMON,
    "logprobs": {"logprobs": True},
    "top_logprobs": {"logprobs": True, "top_logprobs": 3},
    "max_completion_tokens": {"max_completion_tokens": 7, "max_tokens": openai.omit},
}
COMPLETION = {**COMMON, "logprobs": {"logprobs": 0}, "top_logprobs": {"logprobs": 3}, "echo": {"echo": True}}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What must not depend on how it was asked for."""

    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    logprobs: tuple[Any, ...]
    usage: tuple[int, int, int]


def merged(options: dict[str, Any], speculation: dict[str, Any]) -> dict[str, Any]:
    options = {"seed": 11, "max_tokens": 10, **options}
    body = options.pop("extra_body", {})
    body = {**body, "speculation": {**body.get("speculation", {}), **speculation["speculation"]}}
    return {**options, "extra_body": body}


def rounded(logprobs: list[float]) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in logprobs)


def chat_logprobs(items: list[Any]) -> Any:
    return tuple(
        (item.token, tuple(item.bytes), round(item.logprob, 4), tuple(top.token for top in item.top_logprobs))
        for item in items
    )


def usage_of(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def chat(client: openai.OpenAI, options: dict[str, Any]) -> Outcome:
    completion = client.chat.completions.create(model=MODEL, messages=MESSAGES, **options)
    choices = completion.choices
    assert [choice.index for choice in choices] == list(range(len(choices)))
    return Outcome(
        tuple(choice.message.content for choice in choices),
        tuple(choice.finish_reason for choice in choices),
        tuple(chat_logprobs(choice.logprobs.content) if choice.logprobs else None for choice in choices),
        usage_of(completion.usage),
    )


def chat_streamed(client: openai.OpenAI, options: dict[str, Any]) -> Outcome:
    num_choices = options.get("n", 1)
    texts, finish_reasons = [""] * num_choices, [None] * num_choices
    logprobs: list[list[Any]] = [[] for _ in range(num_choices)]
    usage = None
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options
    )
    for event in stream:
        assert usage is None, "the usage comes last"
        usage = event.usage
        for choice in event.choices:
            assert finish_reasons[choice.index] is None, "nothing follows the end of an answer"
            texts[choice.index] += choice.delta.content or ""
            finish_reasons[choice.index] = choice.finish_reason
            if choice.logprobs:
                logprobs[choice.index] += choice.logprobs.content
    return Outcome(
        tuple(texts),
        tuple(map(str, finish_reasons)),
        tuple(chat_logprobs(items) if items else None for items in logprobs),
        usage_of(usage),
    )


def completion_logprobs(pieces: list[Any]) -> Any:
    if not pieces:
        return None
    top = tuple(tuple(place) for piece in pieces for place in piece.top_logprobs or ())
    return (
        tuple(token for piece in pieces for token in piece.tokens),
        rounded([value for piece in pieces for value in piece.token_logprobs]),
        top,
        tuple(offset for piece in pieces for offset in piece.text_offset),
    )


def complete(client: openai.OpenAI, options: dict[str, Any]) -> Outcome:
    completion = client.completions.create(model=MODEL, prompt="ab ab ab ab", **options)
    choices = completion.choices
    return Outcome(
        tuple(choice.text for choice in choices),
        tuple(choice.finish_reason for choice in choices),
        tuple(completion_logprobs([choice.logprobs] if choice.logprobs else []) for choice in choices),
        usage_of(completion.usage),
    )


def complete_streamed(client: openai.OpenAI, options: dict[str, Any]) -> Outcome:
    num_choices = options.get("n", 1)
    texts, finish_reasons = [""] * num_choices, [None] * num_choices
    logprobs: list[list[Any]] = [[] for _ in range(num_choices)]
    usage = None
    stream = client.completions.create(
        model=MODEL, prompt="ab ab ab ab", stream=True, stream_options={"include_usage": True}, **options
    )
    for event in stream:
        assert usage is None, "the usage comes last"
        usage = event.usage
        for choice in event.choices:
            texts[choice.index] += choice.text
            finish_reasons[choice.index] = choice.finish_reason
            if choice.logprobs:
                logprobs[choice.index].append(choice.logprobs)
    return Outcome(
        tuple(texts), tuple(map(str, finish_reasons)), tuple(map(completion_logprobs, logprobs)), usage_of(usage)
    )


@pytest.mark.parametrize("name", CHAT)
def test_chat(real_client: openai.OpenAI, name: str) -> None:
    plain, speculative = merged(CHAT[name], OFF), merged(CHAT[name], ON)
    outcome = chat(real_client, plain)
    assert chat_streamed(real_client, plain) == outcome
    assert chat(real_client, speculative) == outcome
    assert chat_streamed(real_client, speculative) == outcome


@pytest.mark.parametrize("name", COMPLETION)
def test_completion(real_client: openai.OpenAI, name: str) -> None:
    plain, speculative = merged(COMPLETION[name], OFF), merged(COMPLETION[name], ON)
    outcome = complete(real_client, plain)
    assert complete_streamed(real_client, plain) == outcome
    assert complete(real_client, speculative) == outcome
    assert complete_streamed(real_client, speculative) == outcome


@pytest.mark.parametrize(
    "name",
    [
        "greedy",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "frequency_penalty",
        "logit_bias",
        "stop",
        "stop_token_ids",
    ],
)
def test_a_parameter_has_an_effect(real_client: openai.OpenAI, name: str) -> None:
    assert chat(real_client, merged(CHAT[name], OFF)).texts != chat(real_client, merged({}, OFF)).texts


def test_answers_of_one_request_take_the_seeds_that_follow(real_client: openai.OpenAI) -> None:
    texts = chat(real_client, merged({"n": 3, "seed": 5}, ON)).texts
    assert len(set(texts)) == 3
    assert texts == tuple(chat(real_client, merged({"seed": seed}, OFF)).texts[0] for seed in (5, 6, 7))


def test_speculation_is_reported(real_client: openai.OpenAI) -> None:
    options = merged({"temperature": 0, "max_tokens": 40, "extra_body": {"speculation": {"return_tokens": True}}}, ON)
    completion = real_client.chat.completions.create(model=MODEL, messages=MESSAGES, **options)
    speculation = completion.choices[0].speculation
    assert speculation["report"]["num_rounds"] > 0
    assert speculation["report"]["seed"] == 11
    tokens = speculation["tokens"]
    assert len(tokens["token_ids"]) == completion.usage.completion_tokens == len(tokens["origins"])
    assert "".join(tokens["texts"]) == completion.choices[0].message.content
    assert tokens["origins"].count("accepted") == speculation["report"]["num_accepted_tokens"]
    last_of_rounds = [
        number
        for number, origin in zip(tokens["round_draft_tokens"], tokens["origins"], strict=True)
        if origin in ("recovered", "bonus")
    ]
    assert 0 <= speculation["report"]["num_draft_tokens"] - sum(last_of_rounds) <= 4, (
        "one round may end with the answer"
    )
