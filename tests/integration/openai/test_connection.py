"""Clients that leave, servers that end, many at once."""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence

import openai
import pytest

from pilotfish.client.inference import InferenceClient
from pilotfish.messages import Event
from tests.support.stack import StackThread

LONG = {"max_tokens": 100_000, "extra_body": {"ignore_eos": True}}
MESSAGES = [{"role": "user", "content": "sea"}]


def test_leaving_a_stream_frees_the_sequence(emulated_server, emulated_client: openai.OpenAI) -> None:
    with emulated_client.chat.completions.create(model="", messages=MESSAGES, stream=True, n=2, **LONG) as stream:
        for _ in range(5):
            next(stream)
        assert emulated_server.orchestrator.service.request_queue.num_running == 2
    emulated_server.wait_until_idle()


def test_leaving_before_the_answer_frees_the_sequence(emulated_server, emulated_client: openai.OpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        emulated_client.with_options(timeout=0.2).completions.create(model="", prompt="sea", **LONG)
    emulated_server.wait_until_idle()


def test_models(emulated_client: openai.OpenAI) -> None:
    (model,) = emulated_client.models.list().data
    assert emulated_client.models.retrieve(model.id) == model
    completion = emulated_client.chat.completions.create(model=model.id, messages=MESSAGES, max_tokens=2)
    assert completion.model == model.id
    assert completion.system_fingerprint.startswith("fp_")


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics", "/openapi.json"])
def test_what_comes_with_a_get_is_left_aside(emulated_server, path: str) -> None:
    assert emulated_server.http.request("GET", path, json={"stream": False}).status_code == 200


def test_a_slash_at_the_end_changes_nothing(emulated_server, emulated_client: openai.OpenAI) -> None:
    http = emulated_server.http
    (model,) = emulated_client.models.list().data
    assert http.get("/v1/models/").json() == http.get("/v1/models").json()
    assert http.get(f"/v1/models/{model.id}/").json()["id"] == model.id
    for path in ("/health", "/ready", "/version", "/fleet", "/openapi.json"):
        assert http.get(f"{path}/", follow_redirects=False).status_code == 200
    bodies = {
        "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
        "/v1/completions": {"prompt": "sea", "max_tokens": 2},
        "/v1/responses": {"input": "sea", "max_output_tokens": 2},
        "/tokenize": {"prompt": "sea"},
        "/detokenize": {"tokens": [5]},
    }
    for path, body in bodies.items():
        assert http.post(f"{path}/", json=body, follow_redirects=False).status_code == 200


def test_the_model_may_have_names_of_our_own(start_server: Callable[..., StackThread], client_of) -> None:
    with start_server(served_model_name=["gpt-x", "alias"]) as server:
        client = client_of(server)
        assert [model.id for model in client.models.list().data] == ["gpt-x", "alias"]
        assert client.models.retrieve("alias").id == "alias"
        for name in ("", "gpt-x", "alias"):
            completion = client.completions.create(model=name, prompt="sea", max_tokens=2)
            assert completion.model == "gpt-x"
        with pytest.raises(openai.NotFoundError, match="this server serves 'gpt-x' or 'alias'"):
            client.models.retrieve("emulated instant")
        with InferenceClient(server.orchestrator.address) as grpc_client:
            assert grpc_client.info().model_id == "gpt-x"


def test_prompts_of_every_kind(real_client: openai.OpenAI) -> None:
    def texts(prompt, **options) -> list[str]:
        completion = real_client.completions.create(model="", prompt=prompt, max_tokens=6, temperature=0, **options)
        assert [choice.index for choice in completion.choices] == list(range(len(completion.choices)))
        return [choice.text for choice in completion.choices]

    token_ids = real_client.post(at_root(real_client, "tokenize"), body={"prompt": "ab"}, cast_to=object)["tokens"]
    (text,) = texts("ab")
    assert texts(token_ids) == [text]
    assert texts([token_ids, token_ids]) == texts(["ab", "ab"]) == [text, text]
    assert texts(["ab", "cd"], n=2, echo=True)[::2] == [f"ab{text}", f"cd{texts('cd')[0]}"]


def test_tokenize_and_back(real_client: openai.OpenAI) -> None:
    tokenized = real_client.post(
        at_root(real_client, "tokenize"), body={"prompt": "a b", "return_token_strs": True}, cast_to=object
    )
    assert (tokenized["count"], tokenized["token_strs"]) == (3, ["a", " ", "b"])
    body = {"tokens": tokenized["tokens"]}
    assert real_client.post(at_root(real_client, "detokenize"), body=body, cast_to=object) == {"prompt": "a b"}
    chat = real_client.post(
        at_root(real_client, "tokenize"), body={"messages": [{"role": "user", "content": "x"}]}, cast_to=object
    )
    back = real_client.post(at_root(real_client, "detokenize"), body={"tokens": chat["tokens"]}, cast_to=object)
    assert back == {"prompt": "user:x|assistant:"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(emulated_server) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "--silent", "--show-error", "--max-time", "30", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    body = '{"messages": [{"role": "user", "content": "sea"}], "max_tokens": 3, "stream": true}'
    events = curl("--no-buffer", f"{emulated_server.url}/v1/chat/completions", "--data", body)
    assert events.startswith('data: {"id":"chatcmpl-')
    assert events.endswith("data: [DONE]\n\n")
    assert curl(f"{emulated_server.url}/health") == '{"status":"ok"}'
    assert curl(f"{emulated_server.url}/ready") == '{"status":"ready"}'
    assert "version" in curl(f"{emulated_server.url}/version")


def test_a_server_that_ends_lets_answers_end(start_server, client_of, monkeypatch: pytest.MonkeyPatch) -> None:
    with start_server() as server:
        client = client_of(server)
        stream = client.completions.create(
            model="", prompt="sea", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
        )
        next(stream)
        may_go_on, receive = asyncio.Event(), server.engine.receive

        async def receive_later() -> Sequence[Event]:
            await may_go_on.wait()
            return await receive()

        async def go_on() -> None:
            may_go_on.set()

        monkeypatch.setattr(server.engine, "receive", receive_later)  # the answer lasts until all has been looked at
        end = threading.Thread(target=server.call, args=(server.orchestrator.drain_and_stop(30),))
        end.start()
        while server.http.get("/ready").status_code == 200:
            pass
        assert server.http.get("/health").status_code == 503
        refusal = server.http.post("/v1/completions", json={"prompt": "sea"})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "service_unavailable")
        assert refusal.headers["connection"] == "close"
        server.call(go_on())
        events = list(stream)
        end.join()
        assert events[-1].choices[0].finish_reason == "length"
        with pytest.raises(openai.APIConnectionError):
            client.models.list()


def test_a_full_server_says_when_to_come_back(start_server, client_of) -> None:
    limits = {"max_concurrent_requests": 1, "max_queued_requests": 0}
    with start_server(**limits) as server:
        client = client_of(server)
        with client.completions.create(model="", prompt="sea", stream=True, **LONG) as stream:
            next(stream)
            with pytest.raises(openai.RateLimitError) as failure:
                client.completions.create(model="", prompt="sky")
            assert float(failure.value.response.headers["retry-after-ms"]) > 0
            assert int(failure.value.response.headers["retry-after"]) >= 1
        # One that tries again comes through.
        assert client.with_options(max_retries=5).completions.create(model="", prompt="sky").choices


def test_without_a_replica_nothing_is_ready(start_server, client_of) -> None:
    with start_server(connect_timeout_s=0.2) as server:
        client = client_of(server)
        server.call(server.stack.target.drain_and_stop(0))
        server.wait_until(lambda: server.orchestrator.service.targets.num_connected == 0)
        assert client.models.list().data == []
        with pytest.raises(openai.InternalServerError) as failure:
            client.completions.create(model="", prompt="sea")
        assert (failure.value.status_code, failure.value.code) == (503, "service_unavailable")
        with pytest.raises(openai.InternalServerError) as failure:
            client.get(at_root(client, "ready"), cast_to=object)
        assert failure.value.status_code == 503
        assert client.get(at_root(client, "health"), cast_to=object) == {"status": "ok"}


def at_root(client, path: str) -> str:
    """Of an endpoint that is not OpenAI's."""
    return str(client.base_url.join(f"/{path}"))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "TEXT", "echo": True, "max_tokens": 2}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "TEXT"}], "echo": True},
        ),
        ("/v1/responses", {"input": "x", "instructions": "TEXT"}),
    ],
)
def test_events_are_lines_to_those_who_split_at_more_than_line_ends(real_server, path: str, fields: dict) -> None:
    text = "a\u2028b\u2029c\u0085d\u00e9\u2027"
    body = json.dumps({"stream": True, "max_tokens": 2, "max_output_tokens": 2, **fields}).replace("TEXT", text)
    answer = real_server.http.post(path, content=body.encode())
    assert answer.status_code == 200
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if not line.startswith("event: ")]
    events = [json.loads(line) for line in lines if line and line != "[DONE]"]
    assert text in json.dumps(events, ensure_ascii=False)
