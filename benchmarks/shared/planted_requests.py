"""Requests, so many at a time for some seconds, and what the orchestrator counted meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from shared.asking import Arrival, ask, connected
from shared.planted_stack import Front

from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

PROMPT_TOKENS, ANSWER_TOKENS, SETTLE_S = 64, 2048, 0.5
START_TIMEOUT_S = 60.0
"""Until every request has a token."""


class Streams:
    """Requests over and over, until they are cancelled."""

    def __init__(self, stub: pb_grpc.InferenceStub, proposer: str, load: int, num_draft_tokens: int) -> None:
        """proposer: of the requests; num_draft_tokens 0: plain decoding."""
        mode = pb.SPECULATION_MODE_ON if num_draft_tokens else pb.SPECULATION_MODE_OFF
        length = num_draft_tokens or None
        self._options = pb.SpeculationOptions(mode=mode, proposer=proposer, num_speculative_tokens=length)
        self._stub, self._load = stub, load
        self._begun: set[int] = set()
        self.have_begun = asyncio.Event()
        self.num_tokens = 0

    async def keep_asking(self, number: int) -> None:
        """number: of the stream; no two prompts are the same."""

        def on_arrival(arrival: Arrival) -> None:
            self.num_tokens += arrival.num_tokens
            self._begun.add(number)
            if len(self._begun) == self._load:
                self.have_begun.set()

        for turn in range(10_000):
            first = 7919 * (turn * self._load + number)
            prompt = [1000 + (first + 31 * place * (1 + number)) % 3000 for place in range(PROMPT_TOKENS)]
            request = pb.GenerateRequest(
                tokens=pb.TokenPrompt(token_ids=prompt),
                max_tokens=ANSWER_TOKENS,
                temperature=0,
                ignore_eos=True,
                speculation=self._options,
            )
            await ask(self._stub, request, on_arrival)


async def measure(to: Front, proposer: str, load: int, num_draft_tokens: int, seconds: float) -> dict[str, Any]:
    """Figures of `seconds` while so many requests are answered.

    Raises TimeoutError when they do not begin, and whatever one of them fails with.
    """
    async with connected(to.address) as stub, asyncio.timeout(START_TIMEOUT_S + seconds):
        streams = Streams(stub, proposer, load, num_draft_tokens)
        tasks = [asyncio.create_task(streams.keep_asking(number)) for number in range(load)]
        begun = asyncio.create_task(streams.have_begun.wait())
        try:
            await asyncio.wait([begun, *tasks], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(tasks, timeout=SETTLE_S, return_when=asyncio.FIRST_COMPLETED)
            before, start_s, num_before = await to.counts(), time.perf_counter(), streams.num_tokens
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            elapsed_s, num_tokens = time.perf_counter() - start_s, streams.num_tokens - num_before
            after = await to.counts()
            for task in tasks:
                if task.done():
                    task.result()  # none ends but by an error
        finally:
            for task in (begun, *tasks):
                task.cancel()
            await asyncio.gather(begun, *tasks, return_exceptions=True)
    counts = Counter({name: after[name] - before[name] for name in after})
    return figures_of(counts, num_tokens / elapsed_s, load)


def figures_of(counts: Counter[str], tokens_per_s: float, load: int) -> dict[str, Any]:
    """What a row says, from the orchestrator's counters over the same time, as good as."""
    rounds, accepted = counts["spec_decode_num_drafts"], counts["spec_decode_num_accepted_tokens"]
    figures: dict[str, Any] = {"tokens_per_s": tokens_per_s}
    if not rounds:
        return figures | {"round_ms": 1e3 * load / tokens_per_s}
    plain = counts["spec_decode_num_plain_tokens"]
    num_tokens = rounds + accepted + plain
    figures |= {
        "rounds": int(rounds),
        "tokens_per_round": 1 + accepted / rounds,
        "drafts_per_round": counts["spec_decode_num_draft_tokens"] / rounds,
        "round_ms": 1e3 * load * num_tokens / rounds / tokens_per_s,
        "plain_share": plain / num_tokens,
        "missed_deadlines": int(counts["spec_decode_missed_deadlines"]),
    }
    results = {name: counts[f"draft_ahead_rounds/{name}"] for name in ("gone_on", "hit", "late_hit", "miss")}
    if total := sum(results.values()):
        figures["hit_rate"] = (results["gone_on"] + results["hit"]) / total
        figures |= {f"{name}_share": count / total for name, count in results.items()}
    return figures
