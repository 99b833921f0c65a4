"""A client's deadline: one for all that is done for its request, whatever that waits for."""

import asyncio
import contextlib
import http.client
import json
import threading

import openai
import pytest

LONG = {"max_tokens": 1_000_000, "extra_body": {"ignore_eos": True}}
IN_TIME = {"x-request-timeout-ms": "60000"}
SOON = {"x-request-timeout-ms": "100"}
ONCE_BEGUN = {"x-request-timeout-ms": "1000"}
"""Time for a slow machine to begin with the request, and for none to end it."""


def test_an_answer_that_takes_too_long_is_ended(emulated_server, emulated_client: openai.OpenAI) -> None:
    failures = emulated_server.orchestrator.service.statistics.failures
    num_late = failures["deadline_exceeded"]
    with pytest.raises(openai.InternalServerError) as failure:
        # A client that tries again would find its deadline passed again.
        emulated_client.with_options(max_retries=2).completions.create(
            model="", prompt="sea", extra_headers=ONCE_BEGUN, **LONG
        )
    assert failure.value.status_code == 504
    assert (failure.value.type, failure.value.code) == ("timeout_error", "deadline_exceeded")
    emulated_server.wait_until_idle()
    assert failures["deadline_exceeded"] == num_late + 1


def test_a_stream_says_that_it_was_ended(emulated_server, emulated_client: openai.OpenAI) -> None:
    stream = emulated_client.completions.create(
        model="", prompt="sea", stream=True, n=2, extra_headers=ONCE_BEGUN, **LONG
    )
    with pytest.raises(openai.APIError, match="before the answer was complete") as failure:
        assert list(stream)
    assert failure.value.code == "deadline_exceeded"
    emulated_server.wait_until_idle()


def test_it_holds_in_the_queue(start_server, client_of) -> None:
    with start_server(max_concurrent_requests=1) as server:
        client = client_of(server)
        with client.completions.create(model="", prompt="sea", stream=True, **LONG) as stream:
            next(stream)
            with pytest.raises(openai.InternalServerError, match="the deadline passed") as failure:
                client.completions.create(model="", prompt="sky", extra_headers=ONCE_BEGUN)
            assert failure.value.status_code == 504
        queue = server.orchestrator.service.request_queue
        assert (queue.counters.num_expired, queue.counters.num_abandoned) == (1, 0)
        assert client.completions.create(model="", prompt="sky", extra_headers=IN_TIME).choices


CHAT = {"messages": [{"role": "user", "content": "sea"}]}
REQUESTS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "sea", "echo": True, "logprobs": 1}),
    ("/v1/completions", {"prompt": ["sea", "sky"], "n": 2}),
    ("/v1/responses", {"input": "sea"}),
]


def assert_late(answer) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (504, "deadline_exceeded")
    assert "after 0.1 s" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_it_holds_while_there_is_no_target(serverless, path: str, body: dict, stream: bool) -> None:
    assert_late(serverless.http.post(path, json={**body, "stream": stream}, headers=SOON))


def test_it_holds_for_every_endpoint(serverless) -> None:
    assert_late(serverless.http.get("/v1/models/sea", headers=SOON))
    assert_late(serverless.http.post("/tokenize", json={"prompt": "sea"}, headers=SOON))
    assert_late(serverless.http.post("/detokenize", json={"tokens": [5]}, headers=SOON))


@pytest.fixture(scope="module")
def serverless(start_server):
    """Requests wait a minute for a target to come back."""
    with start_server(connect_timeout_s=60) as server:
        server.call(server.stack.target.drain_and_stop(0))
        yield server


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_it_holds_while_the_prompt_is_tokenised(emulated_server, monkeypatch, path: str, body: dict) -> None:
    tokenizer, is_over = emulated_server.orchestrator.service.tokenizer, threading.Event()
    monkeypatch.setattr(tokenizer, "apply_chat_template", lambda *_, **__: is_over.wait())
    monkeypatch.setattr(tokenizer, "encode", lambda *_, **__: is_over.wait())
    long = {"prompt": "sea " * 1000} if "prompt" in body else {}
    try:
        assert_late(emulated_server.http.post(path, json={**body, **long}, headers=SOON))
    finally:
        is_over.set()
    emulated_server.wait_until_idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), REQUESTS[:2])
def test_it_holds_while_a_grammar_is_checked(emulated_server, monkeypatch, path: str, body: dict, stream: bool) -> None:
    service = emulated_server.orchestrator.service
    num_late = service.statistics.failures["deadline_exceeded"]
    monkeypatch.setattr(service.grammar_check, "check", lambda *_: asyncio.Event().wait())
    answer = emulated_server.http.post(
        path, json={**body, "stream": stream, "structured_outputs": {"regex": "a+"}}, headers=SOON
    )
    assert_late(answer)
    assert service.statistics.failures["deadline_exceeded"] == num_late + 1
    emulated_server.wait_until_idle()


def test_a_body_that_does_not_come_in_time_is_not_waited_for(emulated_server) -> None:
    connection = http.client.HTTPConnection(emulated_server.orchestrator.http_url.removeprefix("http://"))
    with contextlib.closing(connection):
        connection.putrequest("POST", "/v1/completions")
        for name, value in {**SOON, "content-length": "15"}.items():
            connection.putheader(name, value)
        connection.endheaders(b'{"prompt":')
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (504, "deadline_exceeded")
