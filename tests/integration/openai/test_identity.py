"""Every answer says what its request is called; logs and traces say the same."""

import json
import logging
import socket
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import openai
import pytest

from orchestrator.server import SERVICE_NAME
from pilotfish.config import config_from_dict
from pilotfish.security.api_key import ApiKey, digest_of
from pilotfish.security.api_key_file import write_keys
from pilotfish.telemetry.logs import JsonFormatter
from tests.support.otlp_collector import OtlpCollector
from tests.support.stack import StackThread, running_stack

MINE = "my request: 7"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
CHAT = {"messages": [{"role": "user", "content": "sea"}], "max_tokens": 2}
REQUESTS = [
    ("POST", "/v1/chat/completions", CHAT, 200),
    ("POST", "/v1/chat/completions", {**CHAT, "stream": True}, 200),
    ("POST", "/v1/responses", {"input": "sea", "max_output_tokens": 2, "stream": True}, 200),
    ("GET", "/v1/models", None, 200),
    ("GET", "/health", None, 200),
    ("GET", "/", None, 200),
    ("GET", "/metrics", None, 200),
    ("POST", "/v1/completions", {"prompt": "sea", "temperature": "hot"}, 400),
    ("POST", "/v1/completions", {"prompt": "x" * 4_000_000}, 413),
    ("POST", "/v1/chat/completions", {**CHAT, "model": "oracle"}, 404),
    ("GET", "/v1/nothing", None, 404),
    ("GET", "/v1/completions", None, 405),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), REQUESTS)
def test_every_answer_has_the_ids_of_its_request(
    emulated_server: StackThread, method: str, path: str, body: Any, status: int
) -> None:
    def ask(**headers: str) -> httpx.Response:
        return emulated_server.http.request(method, path, json=body, headers=headers)

    named = ask(**{"x-request-id": MINE, "traceparent": TRACEPARENT})
    assert named.status_code == status
    assert named.headers.get_list("x-request-id") == [MINE]
    assert named.headers.get_list("x-trace-id") == [TRACE_ID]
    answers = [ask() for _ in range(2)]
    for header in ("x-request-id", "x-trace-id"):
        assert len({answer.headers[header] for answer in answers}) == 2


def test_openais_client_knows_the_id(emulated_client: openai.OpenAI) -> None:
    answer = emulated_client.chat.completions.create(model="", **CHAT)
    assert answer._request_id
    with pytest.raises(openai.NotFoundError) as failure:
        emulated_client.chat.completions.create(model="oracle", extra_headers={"x-request-id": MINE}, **CHAT)
    assert failure.value.request_id == MINE


def test_pages_of_other_origins_see_the_ids(start_server) -> None:
    with start_server(http={"cors_origins": ["https://a.example"]}) as server:
        preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}
        allowed = server.http.options("/v1/chat/completions", headers=preflight)
        assert (allowed.status_code, "x-request-id" in allowed.headers) == (200, True)
        answer = server.http.get("/v1/models", headers={"origin": "https://a.example"})
        exposed = answer.headers["access-control-expose-headers"]
        assert {"x-request-id", "x-trace-id"} <= set(exposed.split(", "))
        page = server.http.get("/v1/models", headers={"origin": "https://b.example", "x-request-id": MINE})
        assert (page.status_code, page.headers["x-request-id"]) == (403, MINE)


@pytest.mark.parametrize(
    ("head", "has_own"),
    [
        (b"GET / HTTP/9.9\r\n\r\n", False),
        (b"NONSENSE\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nx-request-id: mine\r\nhost: a\r\nbad header\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nx-request-id: mine\r\nhost: a\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", True),
    ],
)
def test_what_is_no_request_is_refused_as_any(emulated_server: StackThread, head: bytes, has_own: bool) -> None:
    url = httpx.URL(emulated_server.url)
    with socket.create_connection((url.host, url.port), timeout=30) as connection:
        connection.sendall(head)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    top, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = top.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert status.startswith("HTTP/1.1 400")
    assert headers["connection"] == "close"
    assert headers["x-request-id"] == "mine" if has_own else headers["x-request-id"]
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_logs_say_which_request(emulated_server: StackThread) -> None:
    lines: list[dict[str, Any]] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter("x").format(record)))

    keeper, headers = Keeper(), {"x-request-id": MINE, "traceparent": TRACEPARENT}
    logging.getLogger().addHandler(keeper)
    try:
        emulated_server.http.post("/v1/chat/completions", json={**CHAT, "a_field_of_nobody": 1}, headers=headers)
    finally:
        logging.getLogger().removeHandler(keeper)
    (line,) = [line for line in lines if "a_field_of_nobody" in line["message"]]
    assert (line["request_id"], line["trace_id"]) == (MINE, TRACE_ID)


@pytest.mark.parametrize("num_answers", [1, 3])
async def test_the_trace_is_found_by_the_answers_headers(num_answers: int, tmp_path) -> None:
    async with OtlpCollector() as collector:
        sections = {"emulation": {"profile": "instant"}, "cache_dir": str(tmp_path)}
        config = config_from_dict({**sections, "telemetry": {"otlp_endpoint": collector.endpoint}})
        async with running_stack(config, with_draft=False) as stack, httpx.AsyncClient(verify=False) as http:
            url = f"{stack.orchestrator.http_url}/v1/chat/completions"
            answer = await http.post(url, json={**CHAT, "n": num_answers}, headers={"x-request-id": MINE})
        roots = [span for span in collector.spans if not span.parent_id]
    assert answer.status_code == 200
    assert {span.trace_id for span in roots} == {answer.headers["x-trace-id"]}
    assert [span.attributes["pilotfish.request_id"] for span in roots] == [MINE] * num_answers


async def test_grpc_calls_have_ids_in_their_trailing_metadata(tmp_path) -> None:
    config = config_from_dict({"emulation": {"profile": "instant"}, "cache_dir": str(tmp_path)})
    metadata = (("x-request-id", MINE), ("traceparent", TRACEPARENT))
    expected = {("x-request-id", MINE), ("x-trace-id", TRACE_ID)}
    async with running_stack(config, with_draft=False) as stack:
        async with stack.call(metadata=metadata) as call:
            summary = [response.summary async for response in call][-1]
            assert summary.request_id == MINE
            assert expected <= set(await call.trailing_metadata())
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stack.ask(metadata=metadata, stop_token_ids=[2**31])
        assert expected <= set(failure.value.trailing_metadata())


@pytest.mark.parametrize(
    ("key", "messages"),
    [("pf-ann", [b"\xff\xff"]), ("pf-ann", []), ("pf-bob", [b""]), ("pf-bob", [])],
    ids=["not decodable", "no message", "wrong key", "wrong key and no message"],
)
async def test_grpc_calls_that_are_refused_unread_have_ids(tmp_path: Path, key: str, messages: list[bytes]) -> None:
    write_keys(tmp_path / "keys", [ApiKey(name="ann", sha256=digest_of("pf-ann"))])
    security = {"public": {"api_keys_file": str(tmp_path / "keys")}}
    config = config_from_dict(
        {"emulation": {"profile": "instant"}, "cache_dir": str(tmp_path / "cache"), "security": security}
    )
    metadata = [("authorization", f"Bearer {key}"), ("traceparent", TRACEPARENT)]
    async with (
        running_stack(config, with_draft=False) as stack,
        grpc.aio.insecure_channel(stack.orchestrator.address) as channel,
    ):
        for method in ("Generate", "Tokenize"):
            call = channel.stream_stream(f"/{SERVICE_NAME}/{method}")
            named = call(iter(messages), metadata=[*metadata, ("x-request-id", MINE)], timeout=30)
            assert {("x-request-id", MINE), ("x-trace-id", TRACE_ID)} <= set(await named.trailing_metadata())
            ids = dict(await call(iter(messages), metadata=metadata, timeout=30).trailing_metadata())
            assert ids["x-request-id"].startswith("req_")
