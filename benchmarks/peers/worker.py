"""A peer's side of shared/peer_process.py: one JSON line in, one out. It runs in the peer's own environment, so that it
needs the standard library only.

In:  {"prompts": [[token ids], ..], "max_tokens": n, "temperature": 0.0, "seed": 0, "mode": "plain", "concurrency": 1}
Out: the facts (versions) once, then {"answers": [{"token_ids": [..], "arrivals": [[seconds, tokens], ..]}, ..],
     "counters": {..}} each. What fails ends the process.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

OnTokens = Callable[..., None]
"""on_tokens(new_token_ids, index=0): output tokens as they come, index: the prompt's."""
Answer = Callable[[dict[str, Any], OnTokens], dict[str, float] | None]
"""answer(request, on_tokens): greedy at temperature 0, else sampled from the whole distribution. Returns counters of
the peer's own, if it has any. Only one that answers several prompts at once is asked for more than one."""


def options_parser(description: str | None) -> argparse.ArgumentParser:
    """What every peer is told when it is started."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", choices=("plain", "lookup", "remote"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="tokens of prompt and answer at most")
    return parser


def serve(load: Callable[[], tuple[dict[str, Any], Answer]]) -> None:
    """Load the peer, which gives its facts and how it answers, then answer until standard input ends."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # What libraries print must not get between the lines.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    facts, answer = load()
    print(json.dumps(facts), file=lines, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answered(answer, json.loads(line))), file=lines, flush=True)


def _answered(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, list[Any]]] = [{"token_ids": [], "arrivals": []} for _ in request["prompts"]]
    start = time.perf_counter()

    def on_tokens(new_token_ids: Sequence[int], index: int = 0) -> None:
        if new_token_ids:
            found[index]["arrivals"].append((time.perf_counter() - start, len(new_token_ids)))
            found[index]["token_ids"].extend(new_token_ids)

    counters = answer(request, on_tokens)
    return {"answers": found, "counters": counters or {}}
