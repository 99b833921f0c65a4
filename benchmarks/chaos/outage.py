"""Throughput while the draft pool is gone, beside a deployment that has none."""

from __future__ import annotations

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
class Turns:
    """Tokens per second of two deployments side by side, turn by turn: others use this machine, too."""

    pooled: list[float]
    alone: list[float]

    @property
    def ratio(self) -> float:
        """With a draft pool (present or gone) over without one."""
        return statistics.median(a / b for a, b in zip(self.pooled, self.alone, strict=True))


async def measure_outage(
    fleet: Fleet, truth: Truth, *, turns: int, requests: int, concurrency: int
) -> tuple[Turns, Turns]:
    """While the draft pool is there, and while it is gone. Leaves the fleet without draft replicas."""
    pooled, alone = Clients([fleet.orchestrators[0].address], truth), Clients([fleet.without_pool.address], truth)
    number = itertools.count()

    async def turn(clients: Clients) -> float:
        plans = [_plan(next(number)) for _ in range(requests)]
        return await _tokens_per_s(clients, plans, concurrency)

    async def side_by_side() -> Turns:
        result = Turns([], [])
        for index in range(-1, turns):
            speeds = await turn(pooled), await turn(alone)
            if index >= 0:  # the first of each warms up
                result.pooled.append(speeds[0])
                result.alone.append(speeds[1])
        return result

    try:
        present = await side_by_side()
        for draft in fleet.drafts:
            draft.kill()
        gone = await side_by_side()
        for clients in (pooled, alone):
            if clients.tally.failures or clients.tally.wrong:
                raise RuntimeError(f"requests failed: {clients.tally.failures or clients.tally.wrong}")
    finally:
        await pooled.close()
        await alone.close()
    return present, gone


async def _tokens_per_s(clients: Clients, plans: Sequence[Plan], concurrency: int) -> float:
    num_tokens, start = clients.tally.num_tokens, time.perf_counter()
    await clients.run(plans, concurrency)
    return (clients.tally.num_tokens - num_tokens) / (time.perf_counter() - start)


def _plan(number: int) -> Plan:
    sampling = SamplingParams(temperature=0.9, seed=number, max_tokens=ANSWER_TOKENS)
    return Plan(f"during the outage, request {number}", sampling, "patient", ANSWER_TOKENS, 120.0)
