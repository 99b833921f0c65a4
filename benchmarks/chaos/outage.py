"""Throughput while the draft pool is gone, beside a deployment that has none."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.clients import Clients, Plan, Truth
from chaos.fleet import Fleet

from pilotfish.types import SamplingParams

ANSWER_TOKENS = 128


@dataclass(frozen=True)
class Outage:
    """Tokens per second of the arms, turn by turn."""

    present: list[float]
    gone: list[float]
    never_there: list[float]

    @property
    def ratio(self) -> float:
        """Gone over never there, of the turns side by side."""
        return statistics.median(a / b for a, b in zip(self.gone, self.never_there, strict=True))


async def measure_outage(fleet: Fleet, truth: Truth, *, turns: int, requests: int, concurrency: int) -> Outage:
    """Leaves the fleet without draft replicas."""
    pooled, alone = Clients([fleet.orchestrators[0].address], truth), Clients([fleet.without_pool.address], truth)
    number = itertools.count()

    async def turn(clients: Clients) -> float:
        plans = [_plan(next(number)) for _ in range(requests)]
        return await _tokens_per_s(clients, plans, concurrency)

    try:
        await turn(pooled)
        await turn(alone)
        present = [await turn(pooled) for _ in range(turns)]
        await asyncio.gather(*(draft.kill() for draft in fleet.drafts))
        await turn(pooled)
        gone, never_there = [], []
        for _ in range(turns):
            gone.append(await turn(pooled))
            never_there.append(await turn(alone))
        for clients in (pooled, alone):
            if clients.tally.failures or clients.tally.wrong:
                raise RuntimeError(f"requests failed: {clients.tally.failures or clients.tally.wrong}")
    finally:
        await pooled.close()
        await alone.close()
    return Outage(present, gone, never_there)


async def _tokens_per_s(clients: Clients, plans: Sequence[Plan], concurrency: int) -> float:
    num_tokens, start = clients.tally.num_tokens, time.perf_counter()
    await clients.run(plans, concurrency)
    return (clients.tally.num_tokens - num_tokens) / (time.perf_counter() - start)


def _plan(number: int) -> Plan:
    sampling = SamplingParams(temperature=0.9, seed=number, max_tokens=ANSWER_TOKENS)
    return Plan(f"during the outage, request {number}", sampling, "patient", ANSWER_TOKENS, 120.0)
