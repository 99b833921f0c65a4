"""The peer's side of a peer process: one JSON line in, one JSON line out. Standard library only.

It runs in the peer's own environment, where nothing of ours is installed, with the repository on its path.

In:  {"prompt_token_ids": [..], "max_tokens": n, "temperature": 0.0, "mode": "plain"}
Out: {"ready": {..}} once, then {"token_ids": [..], "arrivals": [[seconds, tokens], ..]} or {"error": "why"} each
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

OnTokens = Callable[[Sequence[int]], None]
Answer = Callable[[Sequence[int], int, float, str, OnTokens], None]
"""answer(prompt_token_ids, max_tokens, temperature, mode, on_tokens): greedy at temperature 0, else sampled from the
whole distribution with SEED; calls on_tokens with output tokens as they come."""

SEED = 0
"""Of sampled answers. It means something else to each peer, so their texts differ."""


def serve(load: Callable[[], tuple[dict[str, Any], Answer]]) -> None:
    """Load the peer, then answer until standard input ends. load gives its facts (versions) and how it answers."""
    # What libraries print must not get between the lines.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        facts, answer = load()
    except Exception as error:
        _write(answers, {"error": f"{type(error).__name__}: {error}"})
        raise
    _write(answers, {"ready": facts})
    for line in sys.stdin:
        _write(answers, _answered(answer, json.loads(line)))


def _answered(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    token_ids: list[int] = []
    arrivals: list[tuple[float, int]] = []
    start = time.perf_counter()

    def on_tokens(new_token_ids: Sequence[int]) -> None:
        if new_token_ids:
            arrivals.append((time.perf_counter() - start, len(new_token_ids)))
            token_ids.extend(new_token_ids)

    try:
        answer(request["prompt_token_ids"], request["max_tokens"], request["temperature"], request["mode"], on_tokens)
    # Whatever a library raises: the other side decides what it means.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"token_ids": token_ids, "arrivals": arrivals}


def _write(stream: TextIO, value: dict[str, Any]) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()
