"""One streamed answer over HTTP: its tokens, when they came, and what its report counts."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

_EVENT = "data: {"


@dataclass(slots=True)
class FormAnswer:
    token_ids: list[int] = field(default_factory=list)
    first_s: float = 0.0
    """Time from asking to the first tokens."""
    total_s: float = 0.0
    """Time from asking to the last tokens."""
    report: dict[str, Any] = field(default_factory=dict)


async def stream(http: httpx.AsyncClient, body: dict[str, Any]) -> FormAnswer:
    """Raises httpx.HTTPError where it fails, ValueError where it breaks off."""
    answer, start_s = FormAnswer(), time.perf_counter()
    async with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
        if response.is_error:
            raise ValueError((await response.aread()).decode())
        async for line in response.aiter_lines():
            if not line.startswith(_EVENT):
                continue
            for each in json.loads(line.removeprefix("data: "))["choices"]:
                details = each.get("speculation") or {}
                if token_ids := (details.get("tokens") or {}).get("token_ids"):
                    answer.token_ids += token_ids
                    answer.total_s = time.perf_counter() - start_s
                    answer.first_s = answer.first_s or answer.total_s
                answer.report = details.get("report") or answer.report
    if not answer.report:
        raise ValueError("a stream broke off before its report")
    return answer
