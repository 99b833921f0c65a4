"""The peer's side of a peer process: one JSON line in, one JSON line out. Standard library only.

It runs in the peer's own environment, where nothing of ours is installed, with the repository on its path.

In:  {"prompts": [[token ids], ..], "max_tokens": n, "temperature": 0.0, "mode": "plain", "concurrency": 1}
Out: {"ready": {..}} once, then {"answers": [{"token_ids": [..], "arrivals": [[seconds, tokens], ..]}, ..],
     "counters": {..}} or {"error": "why"} each
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
AnswerBatch = Callable[[dict[str, Any], Callable[[int, Sequence[int]], None]], dict[str, float]]
"""answer(request, on_tokens): all prompts of a request, `concurrency` at a time; on_tokens takes the prompt's index as
well. Returns counters of the peer's own, if it has any."""

SEED = 0
"""Of sampled answers. It means something else to each peer, so their texts differ."""


def serve(load: Callable[[], tuple[dict[str, Any], Answer]]) -> None:
    """Load the peer, then answer prompts one by one until standard input ends. load gives its facts (versions) and how
    it answers."""

    def load_batches() -> tuple[dict[str, Any], AnswerBatch]:
        facts, answer = load()

        def answer_batch(request: dict[str, Any], on_tokens: Callable[[int, Sequence[int]], None]) -> dict[str, float]:
            for index, prompt_token_ids in enumerate(request["prompts"]):

                def take(new_token_ids: Sequence[int], index: int = index) -> None:
                    on_tokens(index, new_token_ids)

                answer(prompt_token_ids, request["max_tokens"], request["temperature"], request["mode"], take)
            return {}

        return facts, answer_batch

    serve_batches(load_batches)


def serve_batches(load: Callable[[], tuple[dict[str, Any], AnswerBatch]]) -> None:
    """The same for a peer that answers several prompts at once."""
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


def _answered(answer: AnswerBatch, request: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, list[Any]]] = [{"token_ids": [], "arrivals": []} for _ in request["prompts"]]
    start = time.perf_counter()

    def on_tokens(index: int, new_token_ids: Sequence[int]) -> None:
        if new_token_ids:
            found[index]["arrivals"].append((time.perf_counter() - start, len(new_token_ids)))
            found[index]["token_ids"].extend(new_token_ids)

    try:
        counters = answer(request, on_tokens)
    # Whatever a library raises: the other side decides what it means.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"answers": found, "counters": counters}


def _write(stream: TextIO, value: dict[str, Any]) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()
