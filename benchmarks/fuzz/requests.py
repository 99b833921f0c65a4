"""What clients send to the public API of an orchestrator over emulated replicas: HTTP to every route, and gRPC."""

from __future__ import annotations

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
import shared.checkout  # noqa: F401  # finds tests.support
from hypothesis import strategies as st

from fuzz.frames import EDITS, garbled
from fuzz.replica import UNFORESEEN
from fuzz.values import STRANGE, planted, written
from orchestrator.http.caller import TIMEOUT_HEADER
from pilotfish.config import Config, config_from_dict
from pilotfish.emulation.profiles import load_profile, profile_to_yaml
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.message_strategies import messages
from tests.support.stack import Stack, running_stack

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "d", "parameters": SCHEMA}}
CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": '{"a": 1}'}}
SENSIBLE: dict[str, list[Any]] = {
    "n": [1, 2],
    "stream": [True, False],
    "stream_options": [{"include_usage": True}],
    "temperature": [0, 0.7, 1],
    "top_p": [0.5, 1],
    "top_k": [0, -1, 5],
    "min_p": [0.1],
    "repetition_penalty": [1.1],
    "presence_penalty": [0.5],
    "frequency_penalty": [-0.5],
    "logit_bias": [{"5": 1.5}, {}],
    "seed": [1, -1],
    "stop": ["a", ["a", "b"]],
    "stop_token_ids": [[1, 2]],
    "ignore_eos": [True],
    "response_format": [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": SCHEMA}}],
    "structured_outputs": [{"regex": "[ab]+"}, {"choice": ["a", "b"]}, {"grammar": 'start: "a"'}, {"json": SCHEMA}],
    "speculation": [
        {"mode": "on", "num_speculative_tokens": 3},
        {"proposer": "ngram", "acceptance": "rejection", "return_tokens": True},
    ],
    "metadata": [{"a": "b"}],
    "user": ["u"],
    "logprobs": [True, 0, 2],
    "top_logprobs": [2],
    "tools": [[TOOL], [TOOL, TOOL]],
    "tool_choice": ["auto", "none", "required", {"type": "function", "function": {"name": "look_up"}}],
    "parallel_tool_calls": [False],
    "max_completion_tokens": [3],
    "echo": [True],
    "best_of": [1],
    "suffix": ["s"],
}
CHAT_ONLY = {"top_logprobs", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens"}
COMPLETION_ONLY = {"echo", "best_of", "suffix"}


def options_but(others: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of SENSIBLE."""
    names = st.lists(st.sampled_from(sorted(SENSIBLE.keys() - others)), max_size=6, unique=True)
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries({name: st.sampled_from(SENSIBLE[name]) for name in chosen})
    )


MESSAGES = st.lists(
    st.sampled_from(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "hello"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "1", "tool_call_id": "1"},
        ]
    ),
    min_size=1,
    max_size=4,
)
PROMPTS = st.sampled_from(["hello", [1, 2, 3], ["a", "b"], [[1, 2], [3]]])
LENGTH = st.sampled_from([1, 4])
"""Long answers are no other answers."""
BODIES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "/v1/chat/completions": st.builds(
        lambda m, n, o: {"messages": m, "max_tokens": n, **o}, MESSAGES, LENGTH, options_but(COMPLETION_ONLY)
    ),
    "/v1/completions": st.builds(
        lambda p, n, o: {"prompt": p, "max_tokens": n, **o}, PROMPTS, LENGTH, options_but(CHAT_ONLY)
    ),
    "/tokenize": st.fixed_dictionaries({"prompt": PROMPTS}) | st.fixed_dictionaries({"messages": MESSAGES}),
    "/detokenize": st.fixed_dictionaries({"tokens": st.lists(st.integers(0, 500))}),
}
READ = [
    "/v1/models",
    "/v1/models/x",
    "/health",
    "/ready",
    "/version",
    "/openapi.json",
    "/metrics",
    "/fleet",
    "/",
    "/no",
]
HEADERS = {
    TIMEOUT_HEADER: ["60000", "0", "-1", "1e3", "999999999999", "\u00b2", "1"],
    "x-client-id": ["a", "a" * 3000],
    "traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-0", "ff" * 40],
    "content-type": ["text/plain", "application/json; charset=utf-16"],
    "content-encoding": ["gzip"],
    "origin": ["http://elsewhere.test", "null", "://"],
    "accept": ["nonsense"],
}


@st.composite
def http_requests(draw: st.DrawFn) -> tuple[str, str, dict[str, str], bytes]:
    """Method, path, headers, body."""
    path = draw(st.sampled_from(["/v1/chat/completions"] * 4 + ["/v1/completions"] * 3 + ["/tokenize", "/detokenize"]))
    body: Any = draw(BODIES[path])
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 4]))):
        body = draw(planted(body, sorted(SENSIBLE)))
    data = draw(written(body if draw(st.integers(0, 29)) else draw(STRANGE)))
    if draw(st.integers(0, 9)) == 1:
        data = garbled(data, draw(EDITS))
    method, headers = "POST", {}
    if draw(st.integers(0, 9)) == 1:
        method = draw(st.sampled_from(["POST", "GET", "PUT", "HEAD", "OPTIONS", "DELETE"]))
        path = draw(st.sampled_from([*READ, *BODIES])) + draw(st.sampled_from(["", "", "/", "/../x", "%00", "?a=b"]))
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
    """At the end it still serves."""
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
        if (response.status_code >= 500 and not is_late) or "internal_error" in response.text:
            raise AssertionError(f"{path}: status {response.status_code}: {response.text[:200]}")
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
        errors = [json.loads(event)["error"]["message"] for event in events[:-1] if event.startswith('{"error"')]
        return f"stream {errors}"
    if content_type.startswith("application/json") and response.content:
        body = json.loads(response.text)
        return str(body["error"]["message"]) if "error" in body else "JSON"
    return str(content_type)
