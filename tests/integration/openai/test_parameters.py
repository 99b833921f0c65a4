"""Every parameter through OpenAI's own client, streamed and not, with speculation on and off: equal outputs."""

import dataclasses
from collections.abc import Callable
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
    "stop": {"stop": ["us", "st", "a", "o"]},
    "stop_token_ids": {"extra_body": {"stop_token_ids": [*range(15, 50)]}},
    "allowed_token_ids": {"extra_body": {"allowed_token_ids": [*range(12, 60, 3)]}},
    "allowed_token_ids, greedy": {"temperature": 0, "extra_body": {"allowed_token_ids": [*range(10, 60, 3)]}},
    "ignore_eos": {"extra_body": {"ignore_eos": True}},
    "min_tokens": {"extra_body": {"min_tokens": 6, "stop_token_ids": [*range(15, 50)]}},
    "min_tokens, greedy": {"temperature": 0, "extra_body": {"min_tokens": 6, "stop_token_ids": [*range(15, 50)]}},
    "min_tokens, rejection": {
        "temperature": 0,
        "extra_body": {"min_tokens": 6, "stop_token_ids": [*range(9)], "speculation": {"acceptance": "rejection"}},
    },
    "min_tokens of stop strings": {"stop": ["us", "st", "a", "o"], "extra_body": {"min_tokens": 4}},
    "bad_words": {"extra_body": {"bad_words": ["B", "0", "@v", "-"]}},
    "bad_words, greedy": {"temperature": 0, "extra_body": {"bad_words": ["Z", "v", "a"]}},
    "include_stop_str_in_output": {
        "stop": ["us", "st", "a", "o"],
        "extra_body": {"include_stop_str_in_output": True},
    },
    "skip_special_tokens": {"logit_bias": {"0": 4}, "extra_body": {"skip_special_tokens": False, "ignore_eos": True}},
    "n": {"n": 3},
    "rejection": {"temperature": 0, "extra_body": {"speculation": {"acceptance": "rejection"}}},
}
CHAT = {
    **dict(list(COMMON.items())[::2]),
    "logprobs": {"logprobs": True},
    "top_logprobs": {"logprobs": True, "top_logprobs": 3},
    "max_completion_tokens": {"max_completion_tokens": 7, "max_tokens": openai.omit},
}
COMPLETION = {
    **dict(list(COMMON.items())[1::2]),
    "logprobs": {"logprobs": 0},
    "top_logprobs": {"logprobs": 3},
    "echo": {"echo": True},
}
"""They share what is common: what it does is the same."""


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


def told_of_chat(logprobs: Any) -> list[Any]:
    return [
        (item.token, tuple(item.bytes), round(item.logprob, 4), tuple(top.token for top in item.top_logprobs))
        for item in logprobs.content
    ]


def told_of_completion(logprobs: Any) -> list[Any]:
    tops = [tuple(top) for top in logprobs.top_logprobs or ()] or [()] * len(logprobs.tokens)
    values = [round(value, 4) for value in logprobs.token_logprobs]
    return list(zip(logprobs.tokens, values, tops, logprobs.text_offset, strict=True))


@dataclasses.dataclass(frozen=True)
class Api:
    """Chat or completions: what is called with which prompt, and where an answer says what."""

    create: Callable[[openai.OpenAI], Any]
    prompt: dict[str, Any]
    told: Callable[[Any], list[Any]]
    texts: tuple[Callable[[Any], str], Callable[[Any], str]]
    """Of a whole choice, and of one in an event."""

    def outcome(self, client: openai.OpenAI, options: dict[str, Any], *, stream: bool) -> Outcome:
        answer = self.create(client)(
            model=MODEL,
            **self.prompt,
            **options,
            **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
        )
        count = options.get("n", 1)
        texts, finish_reasons, logprobs, usage = [""] * count, [""] * count, [list[Any]() for _ in range(count)], None
        for event in answer if stream else [answer]:
            assert usage is None, "the usage comes last"
            usage = event.usage
            for choice in event.choices:
                assert not finish_reasons[choice.index], "nothing follows the end of an answer"
                texts[choice.index] += self.texts[stream](choice) or ""
                finish_reasons[choice.index] = choice.finish_reason or ""
                logprobs[choice.index] += self.told(choice.logprobs) if choice.logprobs else []
        counts = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
        return Outcome(tuple(texts), tuple(finish_reasons), tuple(map(tuple, logprobs)), counts)


CHATS = Api(
    lambda client: client.chat.completions.create,
    {"messages": MESSAGES},
    told_of_chat,
    (lambda choice: choice.message.content, lambda choice: choice.delta.content),
)
COMPLETIONS = Api(
    lambda client: client.completions.create,
    {"prompt": "ab ab ab ab"},
    told_of_completion,
    (lambda choice: choice.text, lambda choice: choice.text),
)


@pytest.mark.parametrize(
    ("api", "options"),
    [
        *(pytest.param(CHATS, options, id=f"chat {name}") for name, options in CHAT.items()),
        *(pytest.param(COMPLETIONS, options, id=f"completion {name}") for name, options in COMPLETION.items()),
    ],
)
def test_speculation_and_streaming_change_nothing(
    real_client: openai.OpenAI, api: Api, options: dict[str, Any]
) -> None:
    is_chat = api is CHATS  # a chat is streamed with speculation, a completion without
    plain = api.outcome(real_client, merged(options, OFF), stream=not is_chat)
    assert api.outcome(real_client, merged(options, ON), stream=is_chat) == plain


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
        "skip_special_tokens",
    ],
)
def test_a_parameter_has_an_effect(real_client: openai.OpenAI, name: str) -> None:
    assert (
        CHATS.outcome(real_client, merged(COMMON[name], OFF), stream=False).texts
        != CHATS.outcome(real_client, merged({}, OFF), stream=False).texts
    )


def test_answers_of_one_request_take_the_seeds_that_follow(real_client: openai.OpenAI) -> None:
    def texts(options: dict[str, Any]) -> tuple[str, ...]:
        return CHATS.outcome(real_client, merged(options, ON), stream=False).texts

    several = texts({"n": 3, "seed": 5})
    assert len(set(several)) == 3
    assert several == tuple(texts({"seed": seed})[0] for seed in (5, 6, 7))


@pytest.mark.parametrize("speculation", [ON, OFF])
def test_a_top_p_of_0_keeps_the_likeliest_token(real_client: openai.OpenAI, speculation: dict[str, Any]) -> None:
    def texts(options: dict[str, Any]) -> tuple[str, ...]:
        return CHATS.outcome(real_client, merged(options, speculation), stream=False).texts

    assert texts({"temperature": 1.5, "top_p": 0}) == texts({"temperature": 0}) != texts({"temperature": 1.5})


def test_without_a_seed_a_prompt_that_stands_there_twice_has_two_answers(real_client: openai.OpenAI) -> None:
    def answers(**options: Any) -> list[tuple[str, int]]:
        asked = real_client.completions.create(model=MODEL, prompt=["ab ab"] * 3, n=2, max_tokens=20, **options)
        return [(choice.text, choice.speculation["report"]["seed"]) for choice in asked.choices]

    drawn = answers()
    first = drawn[0][1]
    assert [seed for _, seed in drawn] == [*range(first, first + 6)]
    assert len({text for text, _ in drawn}) == 6
    seeded = answers(seed=5)
    assert [seed for _, seed in seeded] == [5, 6] * 3
    assert seeded[:2] == seeded[2:4] == seeded[4:]


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
