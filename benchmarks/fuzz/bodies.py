"""HTTP requests to every route of an orchestrator over an emulated stack, in its process or over the loopback."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import random
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from draft_service.server import start_draft
from fuzz.protos import garble
from fuzz.values import plant, strange, written
from orchestrator.api_security import ApiSecurity
from orchestrator.http.app import build_app
from orchestrator.http.caller import TIMEOUT_HEADER
from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, config_from_dict
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.emulation.profiles import load_profile, profile_to_yaml
from target_service.server import start_target

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "d", "parameters": SCHEMA}}
CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": '{"a": 1}'}}
OPTIONS: dict[str, list[Any]] = {
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
}
CHAT_OPTIONS: dict[str, list[Any]] = {
    "logprobs": [True],
    "top_logprobs": [2],
    "tools": [[TOOL], [TOOL, TOOL]],
    "tool_choice": ["auto", "none", "required", {"type": "function", "function": {"name": "look_up"}}],
    "parallel_tool_calls": [False],
    "max_completion_tokens": [3],
}
COMPLETION_OPTIONS: dict[str, list[Any]] = {"logprobs": [0, 2], "echo": [True], "best_of": [1], "suffix": ["s"]}
MESSAGES: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "hello"},
    {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    {"role": "assistant", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "1", "tool_call_id": "1"},
]
PROMPTS: list[Any] = ["hello", [1, 2, 3], ["a", "b"], [[1, 2], [3]]]
READ = ["/v1/models", "/v1/models/x", "/health", "/ready", "/version", "/openapi.json", "/metrics", "/fleet", "/"]
HEADERS = {
    TIMEOUT_HEADER: ["60000", "0", "-1", "1e3", "999999999999", "\u00b2", "1"],
    "x-client-id": ["a", "a" * 3000],
    "traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-0", "ff" * 40],
    "content-type": ["text/plain", "application/json; charset=utf-16"],
    "content-encoding": ["gzip"],
    "origin": ["http://elsewhere.test", "null", "://"],
    "accept": ["nonsense"],
}


class BodiesSurface:
    """An input is a request: method and path, headers, an empty line, the body."""

    def __init__(self, *, over_loopback: bool) -> None:
        self.name = "HTTP over the loopback" if over_loopback else "HTTP"
        self._over_loopback = over_loopback
        self._client: httpx.AsyncClient

    def make(self, rng: random.Random) -> bytes:
        path, body = _request(rng)
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            plant(rng, body, [*OPTIONS, *CHAT_OPTIONS, *COMPLETION_OPTIONS])
        text = written(rng, body if rng.random() < 0.97 else strange(rng))
        data = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.1:
            data = garble(rng, data, data)
        return _packed(rng, "POST", path, data)

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        head, _, body = data.partition(b"\n\n")
        if rng.random() < 0.9:
            return head + b"\n\n" + garble(rng, body, other.partition(b"\n\n")[2])
        method = rng.choice(["POST", "POST", "GET", "PUT", "HEAD", "OPTIONS", "DELETE"])
        return _packed(rng, method, rng.choice([*READ, "/v1/chat/completions", "/tokenize", "/nowhere"]), body)

    def size(self, data: bytes) -> int:  # noqa: ARG002
        return 1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as exits:
            folder = exits.enter_context(tempfile.TemporaryDirectory())
            emulation = {"profile": _short_profile(Path(folder))}
            services = {"target": {"port": 0}, "draft": {"port": 0}, "cache_dir": folder, "emulation": emulation}
            config = config_from_dict(services)
            target = await start_target(config, engine=start_emulated_engine(config, "target"))
            exits.push_async_callback(target.drain_and_stop, 0)
            draft = await start_draft(config, engine=start_emulated_engine(config, "draft"))
            exits.push_async_callback(draft.drain_and_stop, 0)
            addresses = {"target_addresses": [target.address], "draft_addresses": [draft.address]}
            section = {"port": 0, "http": {"port": 0}, **addresses}
            config = config_from_dict({**services, "orchestrator": section})
            server = await OrchestratorServer.start(config)
            exits.push_async_callback(server.drain_and_stop, 0)
            await server.wait_ready(60)
            self._client = await exits.enter_async_context(self._client_of(server, config))
            yield

    def _client_of(self, server: OrchestratorServer, config: Config) -> httpx.AsyncClient:
        if self._over_loopback:
            return httpx.AsyncClient(base_url=server.http_url, timeout=None)
        authenticator = ApiSecurity(config).authenticator
        app = build_app(server.service, config.orchestrator, lambda: False, server.metrics, authenticator)
        return httpx.AsyncClient(base_url="http://127.0.0.1", transport=httpx.ASGITransport(app), timeout=None)

    async def run(self, data: bytes) -> set[str]:
        head, _, body = data.partition(b"\n\n")
        line, *lines = head.decode("utf-8", "replace").split("\n")
        method, _, path = line.partition(" ")
        headers = {
            name: value.encode("latin-1", "replace") for name, value in (header.split(": ", 1) for header in lines)
        }
        response = await self._client.request(method, path, headers=headers, content=body)
        has_deadline = TIMEOUT_HEADER in headers and response.status_code == 504
        if (response.status_code >= 500 and not has_deadline) or "internal_error" in response.text:
            raise AssertionError(f"{path}: status {response.status_code}: {response.text[:200]}")
        return {f"{method} {path.partition('?')[0]}: {response.status_code} {_message(response)}"}


def _short_profile(folder: Path) -> str:
    """An answer without a limit ends with the context."""
    profile = dataclasses.replace(load_profile("instant"), max_context_tokens=512)
    path = folder / "short.yaml"
    path.write_text(profile_to_yaml(profile), encoding="utf-8")
    return str(path)


def _request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A path, and a body that is good for it."""
    path = rng.choice(["/v1/chat/completions"] * 4 + ["/v1/completions"] * 3 + ["/tokenize", "/detokenize"])
    if path == "/detokenize":
        return path, {"tokens": [rng.randrange(500) for _ in range(rng.choice([0, 1, 5]))]}
    prompt, messages = rng.choice(PROMPTS), rng.choices(MESSAGES, k=rng.choice([1, 1, 2, 4]))
    if path == "/tokenize":
        body = {"prompt": prompt} if rng.random() < 0.5 else {"messages": messages}
        return path, copy.deepcopy({**body, "return_token_strs": rng.random() < 0.5})
    is_chat = path == "/v1/chat/completions"
    options = {**OPTIONS, **(CHAT_OPTIONS if is_chat else COMPLETION_OPTIONS)}
    body = {"messages": messages} if is_chat else {"prompt": prompt}
    body |= {name: rng.choice(options[name]) for name in rng.sample(sorted(options), rng.choice([0, 1, 2, 4]))}
    # Long answers are no other answers.
    return path, copy.deepcopy({**body, "max_tokens": rng.choice([1, 4])})


def _packed(rng: random.Random, method: str, path: str, body: bytes) -> bytes:
    if path.endswith("/x") or rng.random() < 0.02:
        path += rng.choice(["", "/", "/../x", "%00", "%ff", "?a=b", "//", "%2f"])
    lines = [f"{method} {path}"]
    lines += [f"{name}: {rng.choice(values)}" for name, values in HEADERS.items() if rng.random() < 0.02]
    return "\n".join(lines).encode() + b"\n\n" + body


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
    return content_type
