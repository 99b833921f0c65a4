"""Fields that vLLM and SGLang added to OpenAI's: what each does. That speculation does not change it is in
test_parameters.py."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.stack import StackThread

PROMPT = {"prompt": "ab ab ab ab", "seed": 11, "max_tokens": 10}
CHAT = {"messages": [{"role": "user", "content": "ab ab ab ab"}], "seed": 11, "max_tokens": 10}


def ask(server: StackThread, path: str = "/v1/completions", **fields: Any) -> dict[str, Any]:
    body = {**(CHAT if "chat" in path else PROMPT), **fields}
    response = httpx.post(f"{server.url}{path}", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["text"]


@pytest.mark.parametrize("mode", ["off", "on"])
def test_an_answer_has_at_least_so_many_tokens(real_server: StackThread, mode: str) -> None:
    stops = {"stop_token_ids": [*range(1, 40)], "speculation": {"mode": mode, "proposer": "ngram"}}
    (free,) = ask(real_server, **stops)["choices"]
    assert free["finish_reason"] == "stop"
    answer = ask(real_server, **stops, min_tokens=8)
    assert answer["usage"]["completion_tokens"] > 8 or answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_does_not_say_bad_words(real_server: StackThread, temperature: int, mode: str) -> None:
    fields = {"temperature": temperature, "speculation": {"mode": mode, "proposer": "ngram"}, "max_tokens": 40}
    words = text_of(ask(real_server, **fields))
    bad_words = [words[0], words[2:4], words[5:8]]
    text = text_of(ask(real_server, **fields, bad_words=bad_words))
    assert text
    assert not any(word in text for word in bad_words)


def test_an_answer_may_end_with_its_stop(real_server: StackThread) -> None:
    text = text_of(ask(real_server))
    stop = text[4:6]
    end = text.index(stop)
    assert text_of(ask(real_server, stop=[stop])) == text[:end]
    assert text_of(ask(real_server, stop=[stop], include_stop_str_in_output=True)) == text[: end + 2]


def test_an_emulated_answer_is_as_long_as_is_asked(emulated_server: StackThread) -> None:
    answer = ask(emulated_server, min_tokens=10, stop_token_ids=[*range(200)])
    assert answer["usage"]["completion_tokens"] == 10
