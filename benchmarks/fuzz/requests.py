"""What clients send to the public API of an orchestrator over emulated replicas: HTTP to every route, and gRPC."""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import schemathesis
import shared.checkout  # noqa: F401  # finds tests.support
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from fuzz.frames import EDITS, garbled, planted, written
from fuzz.replica import UNFORESEEN
from orchestrator.http.caller import TIMEOUT_HEADER
from orchestrator.http.errors import INTERNAL_MESSAGE
from orchestrator.http.operations.openapi import openapi_document
from orchestrator.requests.identity import REQUEST_ID_HEADER
from pilotfish.config import Config, config_from_dict
from pilotfish.emulation.profiles import load_profile, profile_to_yaml
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.message_strategies import messages
from tests.support.stack import Stack, running_stack

MAX_TOKENS = 4
"""Long answers are no other answers."""
OPERATIONS = [
    result.ok()
    for result in schemathesis.openapi.from_dict(openapi_document(), config=SchemathesisConfig()).get_all_operations()
]
CASES = st.one_of([each.as_strategy(generation_mode=mode) for each in OPERATIONS for mode in GenerationMode])
"""Requests to the routes that the API's description names: good ones, and ones that break a rule of it."""
UNDESCRIBED = ["/openapi.json", "/metrics", "/fleet", "/", "/no", "/v1/models/../x", "/v1/completions%00", "/health/"]
KEYS = [
    "n",
    "stream",
    "stop",
    "logprobs",
    "logit_bias",
    "allowed_token_ids",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "input",
    "reasoning",
    "min_tokens",
    "response_format",
    "structured_outputs",
    "speculation",
]
HEADERS = {
    TIMEOUT_HEADER: ["60000", "0", "-1", "1e3", "999999999999", "\u00b2", "1"],
    "x-client-id": ["a", "a" * 3000],
    REQUEST_ID_HEADER: ["a", "a b", "a" * 3000, "\u00e9", ""],
    "traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-0", "ff" * 40],
    "content-type": ["text/plain", "application/json; charset=utf-16"],
    "content-encoding": ["gzip"],
    "origin": ["http://elsewhere.test", "null", "://"],
    "accept": ["nonsense"],
}


@st.composite
def http_requests(draw: st.DrawFn) -> tuple[str, str, dict[str, str], bytes]:
    """Method, path, headers, body."""
    case = draw(CASES)
    method, path, headers, body = case.method, case.formatted_path, {}, case.body
    if isinstance(body, dict | list):
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            body = draw(planted(body, KEYS))
        if isinstance(body, dict) and isinstance(body.get("max_tokens"), int):
            body["max_tokens"] = min(body["max_tokens"], MAX_TOKENS)
        body = draw(written(body))
    data = body if isinstance(body, bytes) else b""
    if draw(st.integers(0, 9)) == 1:
        data = garbled(data, draw(EDITS))
    if draw(st.integers(0, 9)) == 1:
        method = draw(st.sampled_from(["POST", "GET", "PUT", "HEAD", "OPTIONS", "DELETE"]))
        path = draw(st.sampled_from([*UNDESCRIBED, path]))
        name = draw(st.sampled_from(sorted(HEADERS)))
        headers = {name: draw(st.sampled_from(HEADERS[name]))}
    return method, path, headers, data


def emulated_config(folder: Path) -> Config:
    """An answer without a limit ends with the context."""
    profile = dataclasses.replace(load_profile("instant"), max_context_tokens=512)
    path = folder / "short.yaml"
    path.write_text(profile_to_yaml(profile), encoding="utf-8")
    http = {"http": {"port": 0}}
    return config_from_dict({"orchestrator": http, "emulation": {"profile": str(path)}, "cache_dir": str(folder)})


@contextlib.asynccontextmanager
async def emulated_stack() -> AsyncIterator[Stack]:
    """An emulated stack, which must still serve at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_stack(emulated_config(Path(folder))) as stack:
            yield stack
            assert len((await stack.ask(max_tokens=4)).token_ids) == 4


class HttpSurface:
    """An input is a request over the loopback."""

    name = "HTTP"
    inputs = http_requests()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with emulated_stack() as stack:
            url = stack.orchestrator.http_url
            async with httpx.AsyncClient(base_url=url, timeout=None) as self._client:
                yield

    async def run(self, data: tuple[str, str, dict[str, str], bytes]) -> set[str]:
        method, path, headers, body = data
        raw = {name: value.encode("latin-1", "replace") for name, value in headers.items()}
        response = await self._client.request(method, path, headers=raw, content=body)
        is_late = TIMEOUT_HEADER in headers and response.status_code == 504
        if (response.status_code >= 500 and not is_late) or INTERNAL_MESSAGE in response.text:
            raise AssertionError(f"{path}: status {response.status_code}: {response.text[:200]}")
        if len(response.headers.get_list(REQUEST_ID_HEADER)) != 1:
            raise AssertionError(f"{path}: status {response.status_code}: {REQUEST_ID_HEADER} is not there, or twice")
        return {f"{method} {path.partition('?')[0]}: {response.status_code} {_message(response)}"}


class GrpcSurface:
    """An input is a method and the bytes of its request."""

    name = "gRPC"
    inputs = st.tuples(
        st.sampled_from(sorted(pb.DESCRIPTOR.services_by_name["Inference"].methods_by_name)),
        messages(pb.GenerateRequest) | messages(pb.TokenizeRequest),
        st.just([]) | EDITS,
        st.booleans(),
    )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with (
            emulated_stack() as stack,
            grpc.aio.insecure_channel(stack.orchestrator.address) as self._channel,
        ):
            yield

    async def run(self, data: tuple[str, Any, list[tuple[float, int, bytes]], bool]) -> set[str]:
        method, message, edits, is_asked_well = data
        if is_asked_well and isinstance(message, pb.GenerateRequest):
            message.max_tokens, message.temperature = 4, 0.5
            message.ClearField("grammar")
        call = self._channel.unary_stream(f"/pilotfish.v1.Inference/{method}")(
            garbled(message.SerializeToString(), edits)
        )
        num_messages = 0
        with contextlib.suppress(grpc.aio.AioRpcError):  # its status is asked for
            async for _ in call:
                num_messages += 1
        code, details = await call.code(), await call.details()
        if code in UNFORESEEN and "DecodeError" not in details:  # gRPC itself refuses what is no message of the kind
            raise AssertionError(f"{method}: {code.name}: {details}")
        return {f"{method}: {code.name}: {details}", f"{method}: {min(num_messages, 3)} messages"}


def _message(response: httpx.Response) -> str:
    """What kind of answer it is. Raises ValueError for JSON that is none."""
    content_type = response.headers.get("content-type", "")
    if content_type.startswith("text/event-stream"):
        events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
        if events[-1] != "[DONE]":
            raise ValueError(f"a stream ends with {events[-1][:100]}")
        bodies = [json.loads(event.rpartition("data: ")[2]) for event in events[:-1] if '"error":{' in event]
        errors = [body.get("response", body)["error"]["message"] for body in bodies]
        return f"stream {errors}"
    if content_type.startswith("application/json") and response.content:
        body = json.loads(response.text)
        error = body.get("error")  # of a response that was made: null
        return str(error["message"]) if error else "JSON"
    return str(content_type)
