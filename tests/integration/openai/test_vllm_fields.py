"""Fields that vLLM and SGLang added to OpenAI's: what each does. That speculation does not change it is in
test_parameters.py."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from tests.support.stack import StackThread

PROMPT = {"prompt": "ab ab ab ab", "seed": 11, "max_tokens": 10}
CHAT = {"messages": [{"role": "user", "content": "ab ab ab ab"}], "seed": 11, "max_tokens": 10}


def ask(server: StackThread, path: str = "/v1/completions", **fields: Any) -> dict[str, Any]:
    body = {**(CHAT if "chat" in path else PROMPT), **fields}
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["text"]


def test_an_answer_has_at_least_so_many_tokens(real_server: StackThread) -> None:
    stops = {"stop_token_ids": [*range(1, 40)]}
    (free,) = ask(real_server, **stops)["choices"]
    assert free["finish_reason"] == "stop"
    answer = ask(real_server, **stops, min_tokens=8)
    assert answer["usage"]["completion_tokens"] > 8 or answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_does_not_say_bad_words(real_server: StackThread, temperature: int) -> None:
    fields = {"temperature": temperature, "max_tokens": 40}
    words = text_of(ask(real_server, **fields))
    bad_words = [words[0], words[2:4], words[5:8]]
    text = text_of(ask(real_server, **fields, bad_words=bad_words))
    assert text
    assert not any(word in text for word in bad_words)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_answer_consists_of_allowed_tokens(real_server: StackThread, path: str, temperature: int) -> None:
    allowed = [*range(12, 60, 5)]
    fields = {"temperature": temperature, "allowed_token_ids": allowed, "logit_bias": {"13": 100}}
    (choice,) = ask(real_server, path, **fields, return_token_ids=True)["choices"]
    assert len(choice["token_ids"]) == 10
    assert set(allowed).issuperset(choice["token_ids"])


def test_an_emulated_answer_consists_of_allowed_tokens(emulated_server: StackThread) -> None:
    (choice,) = ask(emulated_server, allowed_token_ids=[40, 41], return_token_ids=True)["choices"]
    assert {*choice["token_ids"]} == {40, 41}


def test_an_answer_may_end_with_its_stop(real_server: StackThread) -> None:
    text = text_of(ask(real_server))
    stop = text[4:6]
    end = text.index(stop)
    assert text_of(ask(real_server, stop=[stop])) == text[:end]
    assert text_of(ask(real_server, stop=[stop], include_stop_str_in_output=True)) == text[: end + 2]


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_may_begin_within_the_least_length(real_server: StackThread, mode: str, stream: bool) -> None:
    """A token is a character here."""

    def outcome(**fields: Any) -> tuple[str, str, str | int | None]:
        fields |= {"max_tokens": 16, "speculation": {"mode": mode, "proposer": "ngram"}}
        events = events_of(real_server, "/v1/completions", **fields) if stream else [ask(real_server, **fields)]
        choices = [event["choices"][0] for event in events]
        return "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"], choices[-1]["stop_reason"]

    text, reason, _ = outcome()
    assert reason == "length"
    stop = text[6:10]
    end = text.index(stop)
    for min_tokens in range(end + 4):
        assert outcome(stop=[stop], min_tokens=min_tokens) == (text[:end], "stop", stop)
    assert outcome(stop=[stop], min_tokens=8, include_stop_str_in_output=True) == (text[: end + 4], "stop", stop)
    assert outcome(stop=[stop], min_tokens=end + 4) == (text, "length", None)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_the_end_token_is_not_the_stop_string_of_its_digits(real_server: StackThread, path: str) -> None:
    fields = {"logit_bias": {"0": 100}, "temperature": 0}  # which ends the answer
    for given, reason in (({"stop": ["0"]}, None), ({"stop": ["0"], "stop_token_ids": [0]}, 0)):
        (choice,) = ask(real_server, path, **fields, **given)["choices"]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", reason)
    (digit,) = real_server.http.post("/tokenize", json={"prompt": "0"}).json()["tokens"]
    (choice,) = ask(real_server, path, logit_bias={str(digit): 100}, temperature=0, stop=["0"])["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "0")


def test_an_emulated_answer_is_as_long_as_is_asked(emulated_server: StackThread) -> None:
    answer = ask(emulated_server, min_tokens=10, stop_token_ids=[*range(200)])
    assert answer["usage"]["completion_tokens"] == 10


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"guided_json": {"type": "integer"}}, {"json": {"type": "integer"}}),
        ({"guided_regex": "[ab]{3}"}, {"regex": "[ab]{3}"}),
        ({"guided_choice": ["ab", "ba"]}, {"choice": ["ab", "ba"]}),
        ({"guided_grammar": 'start: "ab" | "c"'}, {"grammar": 'start: "ab" | "c"'}),
    ],
)
def test_older_names_of_formats(real_server: StackThread, older: dict[str, Any], newer: dict[str, Any]) -> None:
    text = text_of(ask(real_server, **older))
    assert text == text_of(ask(real_server, structured_outputs=newer))
    assert text != text_of(ask(real_server))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_token_ids_are_told(real_server: StackThread, path: str, stream: bool) -> None:
    options = {"return_token_ids": True, "speculation": {"return_tokens": True}}
    if not stream:
        answer = ask(real_server, path, **options)
        (choice,) = answer["choices"]
        prompt, output = answer.get("prompt_token_ids") or choice["prompt_token_ids"], choice["token_ids"]
        assert output == choice["speculation"]["tokens"]["token_ids"]
        assert len(output) == answer["usage"]["completion_tokens"]
    else:
        events = events_of(real_server, path, **options)
        prompts = [event.get("prompt_token_ids") or event["choices"][0].get("prompt_token_ids") for event in events]
        prompt = prompts[0]
        assert prompts[1:] == [None] * (len(events) - 1)
        output = [token for event in events for token in event["choices"][0].get("token_ids", ())]
        assert output == ask(real_server, path, **options)["choices"][0]["token_ids"]
    tokenize = {"prompt": PROMPT["prompt"]} if path == "/v1/completions" else {"messages": CHAT["messages"]}
    assert prompt == real_server.http.post("/tokenize", json=tokenize).json()["tokens"]


def events_of(server: StackThread, path: str, **fields: Any) -> list[dict[str, Any]]:
    body = {**(CHAT if "chat" in path else PROMPT), "stream": True, **fields}
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n")[:-2]]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_is_told_with_every_event(real_server: StackThread, path: str) -> None:
    stream_options = {"include_usage": True, "continuous_usage_stats": True}
    events = events_of(real_server, path, stream_options=stream_options)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[-2:] == [10, 10]
    assert {event["usage"]["prompt_tokens"] for event in events} == {events[-1]["usage"]["prompt_tokens"]}


@pytest.mark.parametrize("stream", [False, True])
def test_no_token_is_none(real_server: StackThread, stream: bool) -> None:
    fields = {"max_tokens": 0, "logprobs": 1}
    if stream:
        *_, event, usage = events_of(real_server, "/v1/completions", stream_options={"include_usage": True}, **fields)
        (choice,), counts = event["choices"], usage["usage"]
    else:
        answer = ask(real_server, prompt_logprobs=1, **fields)
        (choice,), counts = answer["choices"], answer["usage"]
        assert len(choice["prompt_logprobs"]) == counts["prompt_tokens"]
    assert (choice["text"], choice["logprobs"], choice["finish_reason"]) == ("", None, "length")
    assert counts["total_tokens"] == counts["prompt_tokens"] > 0 == counts["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_no_token_and_an_echo_give_the_prompt(real_server: StackThread, stream: bool) -> None:
    fields = {"max_tokens": 0, "echo": True}
    if stream:
        (event,) = events_of(real_server, "/v1/completions", **fields)
        (choice,) = event["choices"]
    else:
        answer = ask(real_server, **fields)
        (choice,) = answer["choices"]
        assert answer["usage"]["completion_tokens"] == 0
    assert (choice["text"], choice["finish_reason"]) == (PROMPT["prompt"], "length")


def test_of_a_long_prompt_the_end_is_kept(real_server: StackThread) -> None:
    tokens = [*range(5, 60)] * 40  # the context has 2,048
    kept = ask(real_server, prompt=tokens, truncate_prompt_tokens=20, return_token_ids=True)
    assert kept["choices"][0]["prompt_token_ids"] == tokens[-20:]
    assert text_of(kept) == text_of(ask(real_server, prompt=tokens[-20:]))
    most = ask(real_server, prompt=tokens, truncate_prompt_tokens=-1)
    assert most["usage"]["prompt_tokens"] == 2048 - 10
    for refused in (0, 2049):
        response = real_server.http.post("/v1/completions", json={**PROMPT, "truncate_prompt_tokens": refused})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "truncate_prompt_tokens")


def test_of_a_prompt_that_was_cut_the_rest_is_echoed(real_server: StackThread) -> None:
    echo = {"echo": True, "max_tokens": 0}
    assert text_of(ask(real_server, truncate_prompt_tokens=1, **echo)) == PROMPT["prompt"][-1]
    assert text_of(ask(real_server, truncate_prompt_tokens=2000, **echo)) == PROMPT["prompt"]


@pytest.mark.parametrize(
    "fields",
    [{"chat_template_kwargs": {"mood": "wry"}}, {"add_generation_prompt": False}, {"continue_final_message": True}],
)
def test_a_chat_is_tokenised_as_it_is_answered(real_server: StackThread, fields: dict[str, Any]) -> None:
    answered = ask(real_server, "/v1/chat/completions", return_token_ids=True, **fields)["prompt_token_ids"]
    body = {"messages": CHAT["messages"], **fields}
    assert real_server.http.post("/tokenize", json=body).json()["tokens"] == answered
    assert real_server.http.post("/tokenize", json={"messages": CHAT["messages"]}).json()["tokens"] != answered


def test_prompts_are_cached_for_the_same_salt(real_server: StackThread) -> None:
    def num_cached(**salt: str) -> int:
        answer = ask(real_server, prompt=[*range(9, 59)], **salt)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert num_cached() == 0
    assert num_cached() == 48
    assert num_cached(cache_salt="a") == 0
    assert num_cached(cache_salt="a") == 48
    assert num_cached(cache_salt="b") == 0


def prompt_of(server: StackThread, messages: list[dict[str, str]], **fields: Any) -> str:
    """What becomes of a chat."""
    answer = ask(server, "/v1/chat/completions", messages=messages, return_token_ids=True, **fields)
    return server.http.post("/detokenize", json={"tokens": answer["prompt_token_ids"]}).json()["prompt"]


def test_a_chat_may_end_otherwise(real_server: StackThread) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]
    assert prompt_of(real_server, messages) == "user:a|assistant:b c|assistant:"
    assert prompt_of(real_server, messages, add_generation_prompt=False) == "user:a|assistant:b c|"
    assert prompt_of(real_server, messages, continue_final_message=True) == "user:a|assistant:b c"
    body = {**CHAT, "continue_final_message": True, "add_generation_prompt": True}
    response = real_server.http.post("/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "continue_final_message")


def test_the_template_gets_what_it_reads_and_the_rest_is_named(real_server: StackThread) -> None:
    messages = [{"role": "user", "content": "a"}]
    assert prompt_of(real_server, messages, chat_template_kwargs={"mood": "wry"}) == "wry:user:a|assistant:"
    body = {**CHAT, "chat_template_kwargs": {"mood": 1.5, "tide": [1]}, "reasoning_effort": "low", "priority": 1}
    body["messages"] = [*CHAT["messages"], {"role": "assistant", "content": "a", "reasoning": "b", "name": "c"}]
    response = real_server.http.post("/v1/chat/completions", json=body)
    assert response.headers["x-pilotfish-ignored-fields"].split(", ") == [
        "priority (the queue is fair by client)",
        "chat_template_kwargs.tide (the chat template does not read it)",
        "reasoning_effort (the chat template does not read it)",
        "messages.reasoning (the chat template does not read it)",
        "messages.name (the chat template does not read it)",
    ]


@pytest.mark.parametrize("mode", ["off", "on"])
def test_the_best_of_several_answers_are_given(real_server: StackThread, mode: str) -> None:
    fields = {"prompt": ["ab ab ab ab", "sea"], "speculation": {"mode": mode, "proposer": "ngram"}}
    drawn = ask(real_server, **fields, n=4, logprobs=0)

    def mean(choice: dict[str, Any]) -> float:
        return statistics.mean(choice["logprobs"]["token_logprobs"])

    for prompt in (0, 1):
        ranked = sorted(drawn["choices"][4 * prompt :][:4], key=mean, reverse=True)
        best = ask(real_server, **fields, n=2, best_of=4)
        choices = best["choices"][2 * prompt :][:2]
        assert [choice["text"] for choice in choices] == [choice["text"] for choice in ranked[:2]]
        assert [choice["index"] for choice in choices] == [2 * prompt, 2 * prompt + 1]
        assert choices[0]["logprobs"] is None
        assert best["usage"] == drawn["usage"] | {"prompt_tokens_details": best["usage"]["prompt_tokens_details"]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"n": 3, "best_of": 2}, "best_of"), ({"best_of": 2, "stream": True}, "best_of"), ({"n": 0, "best_of": 2}, "n")],
)
def test_what_best_of_cannot_be(real_server: StackThread, fields: dict[str, Any], param: str) -> None:
    response = real_server.http.post("/v1/completions", json={**PROMPT, **fields})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_an_empty_text_has_no_tokens(real_server: StackThread) -> None:
    answer = real_server.http.post("/tokenize", json={"prompt": ""}).json()
    assert (answer["count"], answer["tokens"]) == (0, [])
    refusal = real_server.http.post("/v1/completions", json={**PROMPT, "prompt": ""})
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_a_chats_last_message_is_echoed_if_it_is_the_assistants(
    real_server: StackThread, role: str, stream: bool
) -> None:
    turns = {"messages": [*CHAT["messages"], {"role": role, "content": "so: "}], "continue_final_message": True}

    def said(**fields: Any) -> str:
        if stream:
            events = events_of(real_server, "/v1/chat/completions", **turns, **fields)
            return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
        return ask(real_server, "/v1/chat/completions", **turns, **fields)["choices"][0]["message"]["content"]

    assert said(echo=True) == ("so: " if role == "assistant" else "") + said()


def test_a_length_beyond_all_bounds_is_the_contexts(real_server: StackThread) -> None:
    answer = ask(real_server, prompt=[*range(5, 60)] * 37, max_tokens=2**63, min_tokens=2**62)
    assert answer["choices"][0]["finish_reason"] == "length"
