"""What a request may ask for, each asked of two servers, or twice of one: with speculation the answer is the same.

Over HTTP, through OpenAI's API and vLLM's additions to it, so that any server can be asked. A case sends its requests
and gives back everything of the answers that a client sees, but for ids and times.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

_TIMEOUT_S = 600.0
_LOGPROB_TOLERANCE = 0.05
"""Between two ways to compute the same one: bfloat16 has eight bits."""
TIGHT_CACHE = "target.engine.kv_cache_tokens=768"
"""With it the requests of the case `preemption` do not all fit."""

QUESTION = "Why does the sea look blue, and why do waves break? Answer in a few sentences."
REPEATING = "Repeat this line three times: The quick brown fox jumps over the lazy dog."
PERSON = "Make up a person."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog"]}, "maxItems": 3},
    },
    "required": ["name", "age", "pets"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "save_person", "parameters": SCHEMA}}


class RefusedError(Exception):
    """The server does not do what the case asks for; says why."""


@dataclass(frozen=True)
class Server:
    """One to ask, and what every request to it has besides."""

    url: str
    """Up to and without /v1."""
    extra: dict[str, Any]
    """Fields of every request: the model, whether it speculates."""

    def chat(self, text: str = QUESTION, **fields: Any) -> list[Any]:
        """The choices of a chat's answer."""
        return self._choices("chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def complete(self, prompt: str, **fields: Any) -> list[Any]:
        """The choices of a completion."""
        return self._choices("completions", {"prompt": prompt, **fields})

    def chat_events(self, text: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """The first choice's delta of each event of a streamed chat."""
        body = {"messages": [{"role": "user", "content": text}], "stream": True, **_DEFAULTS, **self.extra, **fields}
        with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=_TIMEOUT_S) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
            _check(response)
            for line in response.iter_lines():
                if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                    yield choices[0]["delta"]

    def _choices(self, path: str, fields: dict[str, Any]) -> list[Any]:
        body = {**_DEFAULTS, **self.extra, **fields}
        response = httpx.post(f"{self.url}/v1/{path}", json=body, timeout=_TIMEOUT_S)
        _check(response)
        return [_visible(choice) for choice in response.json()["choices"]]


_DEFAULTS: dict[str, Any] = {"temperature": 0, "max_tokens": 48}
_SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 7}


def _check(response: httpx.Response) -> None:
    if response.status_code != httpx.codes.OK:
        raise RefusedError(f"{response.status_code}: {response.text[:200]}")
    if ignored := response.headers.get("x-pilotfish-ignored-fields"):
        raise RefusedError(f"ignored: {ignored}")


def _visible(choice: dict[str, Any]) -> dict[str, Any]:
    """What two answers must have in common."""
    message = choice.get("message") or {}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    seen = {"text": message.get("content") or choice.get("text") or "", "finish": choice["finish_reason"]}
    if calls:
        seen["calls"] = calls
    if thoughts := message.get("reasoning"):
        seen["thoughts"] = thoughts
    if logprobs := (choice.get("logprobs") or {}).get("content"):
        seen["logprobs"] = [
            [(one["token"], one["logprob"]) for one in (position, *position["top_logprobs"])] for position in logprobs
        ]
    return seen


def _stop_in_a_block(server: Server) -> list[Any]:
    """A stop string in the middle of what was just written, where drafts stand beyond it."""
    text = server.chat(REPEATING)[0]["text"]
    middle = len(text) // 2
    return server.chat(REPEATING, stop=[text[middle : middle + 7]])


def _tools_streamed(server: Server) -> list[Any]:
    fields = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 128}
    deltas = server.chat_events(PERSON, **fields)
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    return [{key: "".join(call.get(key) or "" for call in calls) for key in ("name", "arguments")}]


def _abort_and_retry(server: Server) -> list[Any]:
    events = server.chat_events(QUESTION, **_SAMPLED)
    for _ in range(3):
        next(events, None)
    events.close()  # type: ignore[attr-defined]  # a generator
    return server.chat(**_SAMPLED)


def _at_once(server: Server) -> list[Any]:
    """More than a small KV cache holds: with one, sequences are preempted and computed again."""
    with ThreadPoolExecutor(8) as pool:
        ask = [
            pool.submit(server.chat, f"{QUESTION} Write {n} sentences.", max_tokens=80, ignore_eos=True)
            for n in range(4, 12)
        ]
        return [choice for one in ask for choice in one.result()]


def _prefix_cache(server: Server) -> list[Any]:
    prefix = " ".join(f"Line {n}: the tide turns at {n % 12} o'clock." for n in range(40))
    return [*server.chat(f"{prefix} When does it turn in line 7?"), *server.chat(f"{prefix} And in line 31?")]


def _schema_format() -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}


def _chat(text: str = QUESTION, **fields: Any) -> Callable[[Server], list[Any]]:
    return lambda server: server.chat(text, **fields)


CASES: dict[str, Callable[[Server], list[Any]]] = {
    "greedy": _chat(),
    "greedy, repeating": _chat(REPEATING),
    "seeded sampling": _chat(**_SAMPLED),
    "logprobs": _chat(logprobs=True, top_logprobs=3),
    "penalties": _chat(REPEATING, presence_penalty=0.6, frequency_penalty=0.4, repetition_penalty=1.1),
    "min_p": _chat(temperature=1.0, seed=3, min_p=0.1),
    "logit_bias": _chat(logit_bias={"260": -100, "281": 5}),
    "min_tokens": _chat("Say hello.", min_tokens=40),
    "bad_words": _chat(bad_words=[" the", " sea", " wave"]),
    "stop strings": _chat(stop=[" the", "waves"]),
    "stop in a block": _stop_in_a_block,
    "JSON schema": _chat(PERSON, response_format=_schema_format(), max_tokens=128),
    "regex": _chat("Today's date?", structured_outputs={"regex": r"\d{4}-\d{2}-\d{2}, (rain|sun)"}),
    "tools streamed": _tools_streamed,
    "n > 1": _chat(n=3, **_SAMPLED),
    "abort and retry": _abort_and_retry,
    "prefix cache": _prefix_cache,
    "preemption": _at_once,
    "long prompt": lambda server: server.complete(f"{QUESTION} " * 36),
}


def difference(expected: Sequence[Any], found: Sequence[Any]) -> str:
    """Where two results of a case part; empty: they are the same."""
    if len(expected) != len(found):
        return f"{len(found)} answers, not {len(expected)}"
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        for key in one.keys() | other.keys():
            if key == "logprobs":
                if not _are_close(one.get(key), other.get(key)):
                    return f"answer {index}: other log-probabilities"
            elif one.get(key) != other.get(key):
                return f"answer {index}: {key} is {other.get(key)!r}, not {one.get(key)!r}"
    return ""


def _are_close(expected: Sequence[Any] | None, found: Sequence[Any] | None) -> bool:
    if expected is None or found is None or len(expected) != len(found):
        return False
    pairs = [pair for one, other in zip(expected, found, strict=True) for pair in zip(one, other, strict=True)]
    return all(abs(a - b) <= _LOGPROB_TOLERANCE for (_, a), (_, b) in pairs)
