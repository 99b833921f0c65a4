"""Does any failure of a replica reach a client, and is anything left behind?

Emulated engines behind real services, each a process of its own: requests at random (some are cancelled, some read
slowly, some have deadlines) while target and draft replicas are killed (SIGKILL) and frozen (SIGSTOP) at random and
come back. Every answer is held against what an undisturbed run says. Then: what the draft pool's outage costs.
"""

import asyncio
import itertools
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil
import shared.checkout  # noqa: F401  # finds tests.support
from chaos.clients import SHARES, Clients, Plan, Tally, Truth, plans
from chaos.fleet import Fleet
from shared.report import Report, parser

from pilotfish.config import Config, EmulationConfig, OrchestratorConfig
from pilotfish.emulation.profiles import load_profile
from pilotfish.types import SamplingParams
from tests.support.service_process import ServiceProcess

FREEZE_S = (0.5, 6.0)
"""Shorter than the silence after which a replica is given up (orchestrator.silence_timeout_s), and longer."""
RESTART_DELAY_S = (0.0, 1.0)


class Faults:
    """Strikes when so many requests have ended; what it struck comes back."""

    def __init__(
        self,
        replicas: list[ServiceProcess],
        num_ended: Callable[[], int],
        *,
        kills: int,
        freezes: int,
        last: int,
        seed: int,
    ) -> None:
        """last: no fault strikes after this many requests have ended."""
        self.done: Counter[str] = Counter()
        """By kind and pool."""
        self._dice = random.Random(seed)
        self._replicas = replicas
        self._num_ended = num_ended
        kinds = ["kill"] * kills + ["freeze"] * freezes
        self._dice.shuffle(kinds)
        times = sorted(self._dice.randint(1, last) for _ in kinds)
        self._plan = list(zip(times, kinds, strict=True))
        self._struck: set[ServiceProcess] = set()

    async def run(self) -> None:
        """Returns when all faults have struck and every replica is back."""
        async with asyncio.TaskGroup() as group:
            for time, kind in self._plan:
                while self._num_ended() < time or len(self._struck) == len(self._replicas):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                victim = self._dice.choice([member for member in self._replicas if member not in self._struck])
                self._struck.add(victim)
                self.done[f"{kind} of a {victim.service.removesuffix('_service')}"] += 1
                group.create_task(self._kill(victim) if kind == "kill" else self._freeze(victim))

    async def _kill(self, victim: ServiceProcess) -> None:
        victim.kill()
        await asyncio.sleep(self._dice.uniform(*RESTART_DELAY_S))
        victim.start()
        await asyncio.to_thread(victim.wait_listening)
        self._struck.discard(victim)

    async def _freeze(self, victim: ServiceProcess) -> None:
        victim.freeze()
        await asyncio.sleep(self._dice.uniform(*FREEZE_S))
        victim.thaw()
        self._struck.discard(victim)


PROFILE = "a100-70b"
CONFIG = Config(emulation=EmulationConfig(profile=PROFILE), orchestrator=OrchestratorConfig(slow_reader_tokens=64))
NUM_TARGETS, NUM_DRAFTS, NUM_ORCHESTRATORS = 3, 2, 2
LET_GO_S = 10.0
"""A replica that was frozen notices its lost peers after a few seconds."""
MEMORY_BOUND = 1.1
OUTAGE_TOKENS = 128
"""Of an answer."""


def memory_mb(fleet: Fleet) -> list[float]:
    """Resident set of each orchestrator."""
    return [psutil.Process(member.pid).memory_info().rss / 1e6 for member in fleet.orchestrators]


def num_handles(fleet: Fleet) -> int:
    """Open files, sockets included, and threads of all orchestrators."""
    processes = [psutil.Process(member.pid) for member in fleet.orchestrators]
    return sum(process.num_fds() + process.num_threads() for process in processes)


async def run_chaos(report: Report, fleet: Fleet, truth: Truth, *, requests: int, kills: int, concurrency: int) -> None:
    """Warm up undisturbed, then the same with faults; rows and checks into the report."""
    addresses = [member.address for member in fleet.orchestrators]
    warm_up, clients = Clients(addresses, truth), Clients(addresses, truth)
    try:
        await warm_up.run(plans(max(100, requests // 5), seed=1), concurrency)
        await fleet.num_held_after(LET_GO_S)
        memory_before, handles_before = memory_mb(fleet), num_handles(fleet)
        faults = Faults(
            fleet.replicas,
            lambda: clients.tally.num_ended,
            kills=kills,
            freezes=kills // 2,
            last=int(0.95 * requests),
            seed=2,
        )
        start = time.perf_counter()
        await asyncio.gather(clients.run(plans(requests, seed=3), concurrency), faults.run())
        elapsed_s = time.perf_counter() - start
        num_held = await fleet.num_held_after(LET_GO_S)
        memory_after, handles_after = memory_mb(fleet), num_handles(fleet)
    finally:
        await warm_up.close()
        await clients.close()
    for name, count in sorted({**clients.tally.ends, **faults.done}.items()):
        report.row(what=name, count=count)
    report.row(what="seconds", count=elapsed_s)
    report.row(what="tokens", count=clients.tally.num_tokens)
    for name, tally in (("undisturbed", warm_up.tally), ("with faults", clients.tally)):
        report.row(what=f"longest gap of an answer, median and 99 %, ms: {name}", count=_gaps(tally))
    report.row(
        what="orchestrators' memory before and after, MB", count=f"{_numbers(memory_before)} {_numbers(memory_after)}"
    )
    for problem in (*clients.tally.failures, *clients.tally.wrong, *fleet.errors):
        report.row(what="problem", count=problem)
    report.check("kills", sum(n for kind, n in faults.done.items() if "kill" in kind), kills, "", "equal to")
    report.check("requests that ended", clients.tally.num_ended, requests, "", "equal to")
    report.check("failed requests", len(clients.tally.failures), 0, "", "equal to")
    report.check("wrong texts", len(clients.tally.wrong), 0, "", "equal to")
    report.check("errors in logs, and services that ended by themselves", len(fleet.errors), 0, "", "equal to")
    report.check("sequences and KV blocks still held", num_held, 0, "", "equal to")
    growth = max(after / before for after, before in zip(memory_after, memory_before, strict=True))
    report.check("orchestrators' memory, after over before", growth, MEMORY_BOUND)
    report.check("orchestrators' open files and threads, after minus before", handles_after - handles_before, 8, "")


async def run_outage(report: Report, fleet: Fleet, truth: Truth, *, turns: int, requests: int) -> None:
    """Tokens per second with a draft pool and without one, in turns: others use this machine, too.

    While the draft pool is there, and while it is gone. Leaves the fleet without draft replicas.
    """
    pooled, alone = Clients([fleet.orchestrators[0].address], truth), Clients([fleet.without_pool.address], truth)
    number = itertools.count()

    async def tokens_per_s(clients: Clients) -> float:
        num_tokens, start = clients.tally.num_tokens, time.perf_counter()
        await clients.run([_plan(next(number)) for _ in range(requests)], 8)
        return (clients.tally.num_tokens - num_tokens) / (time.perf_counter() - start)

    ratio = 0.0
    try:
        for name in ("there", "gone"):
            # The first of each warms up.
            speeds = [(await tokens_per_s(pooled), await tokens_per_s(alone)) for _ in range(turns + 1)][1:]
            medians = " ".join(f"{statistics.median(each):.0f}" for each in zip(*speeds, strict=True))
            report.row(what=f"tokens/s, draft pool {name}, and without one beside it", count=medians)
            ratio = statistics.median(a / b for a, b in speeds)
            for draft in fleet.drafts:
                draft.kill()
    finally:
        await pooled.close()
        await alone.close()
    for tally in (pooled.tally, alone.tally):
        if tally.failures or tally.wrong:
            raise RuntimeError(f"requests failed: {tally.failures or tally.wrong}")
    report.check("draft pool gone, over a deployment without one", ratio, 0.99, kind="at least")


async def run(report: Report, *, requests: int, kills: int, concurrency: int, quick: bool) -> None:
    fleet = Fleet(CONFIG, num_targets=NUM_TARGETS, num_drafts=NUM_DRAFTS, num_orchestrators=NUM_ORCHESTRATORS)
    truth = Truth(CONFIG)
    async with fleet:
        await run_chaos(report, fleet, truth, requests=requests, kills=kills, concurrency=concurrency)
        await run_outage(report, fleet, truth, turns=3 if quick else 7, requests=16 if quick else 32)


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--requests", type=int, help="default 10,000, with --quick 500")
    options_parser.add_argument(
        "--kills", type=int, help="default 20, with --quick 6; half as many freezes come on top"
    )
    options_parser.add_argument("--concurrency", type=int, default=32, help="requests at once")
    options = options_parser.parse_args(arguments)
    requests = options.requests or (500 if options.quick else 10_000)
    kills = (6 if options.quick else 20) if options.kills is None else options.kills
    report = Report(
        "Does any failure of a replica reach a client, and is anything left behind?",
        {
            "engines": f"EMULATED {PROFILE}: {load_profile(PROFILE).description}",
            "targets": NUM_TARGETS,
            "drafts": NUM_DRAFTS,
            "orchestrators": NUM_ORCHESTRATORS,
            "requests": requests,
            "in flight": options.concurrency,
            "manners": dict(SHARES),
            "cores shared by clients and services": len(os.sched_getaffinity(0)),
        },
    )
    asyncio.run(run(report, requests=requests, kills=kills, concurrency=options.concurrency, quick=options.quick))
    report.finish(options)
    return 0


def _plan(number: int) -> Plan:
    sampling = SamplingParams(temperature=0.9, seed=number, max_tokens=OUTAGE_TOKENS)
    return Plan(f"during the outage, request {number}", sampling, "patient", OUTAGE_TOKENS, 120.0)


def _numbers(values: Sequence[float]) -> str:
    return "+".join(f"{value:.1f}" for value in values)


def _gaps(tally: Tally) -> str:
    gaps = sorted(tally.longest_gaps_s)
    if not gaps:
        return "none"
    return f"{1e3 * gaps[len(gaps) // 2]:.0f} {1e3 * gaps[int(0.99 * (len(gaps) - 1))]:.0f}"


if __name__ == "__main__":
    sys.exit(main())
