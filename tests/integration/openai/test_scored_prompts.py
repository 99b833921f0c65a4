"""Prompts whose tokens are scored: echoes with log-probabilities, and `prompt_logprobs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.openai.test_vllm_fields import PROMPT, ask, events_of, text_of
from tests.support.stack import StackThread

LONG = "ab ba abba " * 9
"""More tokens than a target verifies at once."""


def logprobs_of(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(token, offset, log-probability, likeliest tokens) of each."""
    told = answer["choices"][0]["logprobs"]
    names = ("tokens", "text_offset", "token_logprobs", "top_logprobs")
    return list(zip(*(told[name] for name in names), strict=True))


@pytest.mark.parametrize("mode", ["off", "on"])
def test_an_echo_is_scored_as_the_answer_was(real_server: StackThread, mode: str) -> None:
    fields = {"logprobs": 3, "echo": True, "speculation": {"mode": mode, "proposer": "ngram"}}
    answer = ask(real_server, prompt=LONG, max_tokens=40, **fields)
    told, text = logprobs_of(answer), text_of(answer)
    num_prompt_tokens = answer["usage"]["prompt_tokens"]
    assert len(told) == num_prompt_tokens + 40
    assert "".join(token for token, *_ in told) == text
    assert [offset for _, offset, *_ in told] == [len("".join(t for t, *_ in told[:i])) for i in range(len(told))]
    assert [logprob is None or top is None for *_, logprob, top in told] == [True] + [False] * (len(told) - 1)
    token_ids = ask(real_server, prompt=LONG, max_tokens=40, return_token_ids=True, **fields)["choices"][0]
    again = ask(real_server, prompt=[*token_ids["prompt_token_ids"], *token_ids["token_ids"]], max_tokens=0, **fields)
    assert logprobs_of(again) == told
    assert again["usage"]["completion_tokens"] == 0


def test_echoes_of_several_prompts_are_scored(real_server: StackThread) -> None:
    """As lm-evaluation-harness asks."""
    prompts = [[*range(5, 50)], [7], [*range(5, 22)]]
    fields = {"logprobs": 1, "echo": True, "temperature": 0}
    choices = ask(real_server, prompt=prompts, max_tokens=1, **fields)["choices"]
    for prompt, choice in zip(prompts, choices, strict=True):
        told = choice["logprobs"]
        assert [len(values) for values in told.values()] == [len(prompt) + 1] * 4
        assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
        (alone,) = ask(real_server, prompt=prompt, max_tokens=1, **fields)["choices"]
        assert alone["logprobs"] == told
        likeliest = max(told["top_logprobs"][-1].values())
        assert told["token_logprobs"][-1] == likeliest, "the answer is greedy"


def test_all_answers_to_a_prompt_tell_its_scores(real_server: StackThread) -> None:
    fields = {"prompt": [LONG, "ab"], "prompt_logprobs": 2, "max_tokens": 2, "temperature": 1, "seed": 3}
    choices = ask(real_server, n=3, **fields)["choices"]
    told = [choice["prompt_logprobs"] for choice in choices]
    assert told[0] == told[1] == told[2] != told[3] == told[4] == told[5]
    assert told[::3] == [choice["prompt_logprobs"] for choice in ask(real_server, **fields)["choices"]]


@pytest.mark.parametrize(
    "fields", [{"prompt_logprobs": 9}, {"logprobs": 9, "echo": True}, {"prompt_logprobs": 0, "n": 10}]
)
def test_so_many_scores_are_told_and_no_more(start_server: Callable[..., StackThread], fields: dict[str, Any]) -> None:
    prompt = list(range(5, 15))
    with start_server(max_prompt_logprobs=100) as server:
        answer = server.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1, **fields})
        assert answer.status_code == 200
        answer = server.http.post("/v1/completions", json={"prompt": [*prompt, 1], "max_tokens": 1, **fields})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt_logprobs")
        assert "at most 100" in answer.json()["error"]["message"]


@pytest.mark.parametrize("max_tokens", [0, 5])
def test_a_scored_echo_is_streamed(real_server: StackThread, max_tokens: int) -> None:
    fields = {"logprobs": 2, "echo": True, "max_tokens": max_tokens, "prompt": LONG}
    choices = [event["choices"][0] for event in events_of(real_server, "/v1/completions", **fields)]
    (whole,) = ask(real_server, **fields)["choices"]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    parts = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert {name: [value for part in parts for value in part[name]] for name in parts[0]} == whole["logprobs"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_prompts_are_scored(real_server: StackThread, path: str) -> None:
    answer = ask(real_server, path, prompt_logprobs=2, return_token_ids=True)
    holder = answer if "chat" in path else answer["choices"][0]
    first, *scores = holder["prompt_logprobs"]
    assert first is None
    assert len(scores) == len(holder["prompt_token_ids"]) - 1
    for token_id, told in zip(holder["prompt_token_ids"][1:], scores, strict=True):
        assert 2 <= len(told) <= 3
        likeliest = sorted(told.values(), key=lambda score: -score["logprob"])
        assert [score["rank"] for score in likeliest[:2]] == [1, 2]
        tokens = real_server.http.post("/detokenize", json={"tokens": [token_id]}).json()["prompt"]
        assert told[str(token_id)]["decoded_token"] == tokens


def test_a_scored_prompt_may_be_echoed_with_fewer(real_server: StackThread) -> None:
    (both,) = ask(real_server, prompt_logprobs=3, echo=True, logprobs=1)["choices"]
    (echo,) = ask(real_server, echo=True, logprobs=1)["choices"]
    assert both["logprobs"] == echo["logprobs"]
    own = [score and next(iter(score.values()))["logprob"] for score in both["prompt_logprobs"]]
    assert own == echo["logprobs"]["token_logprobs"][: len(own)]
    (alone,) = ask(real_server, prompt_logprobs=3)["choices"]
    assert (alone["prompt_logprobs"], alone["logprobs"]) == (both["prompt_logprobs"], None)


@pytest.mark.parametrize("fields", [{"prompt_logprobs": 21}, {"prompt_logprobs": -1}, {"stream": True}])
def test_prompts_that_cannot_be_scored_are_refused(real_server: StackThread, fields: dict[str, Any]) -> None:
    body = {**PROMPT, "prompt_logprobs": 1, **fields}
    response = real_server.http.post("/v1/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt_logprobs")


def test_an_emulated_echo_has_no_scores(emulated_server: StackThread) -> None:
    (choice,) = ask(emulated_server, logprobs=1, echo=True)["choices"]
    assert (choice["logprobs"], choice["text"][: len(PROMPT["prompt"])]) == (None, PROMPT["prompt"])
