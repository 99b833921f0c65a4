"""Does any failure of a replica reach a client, and is anything left behind?

Services as processes of their own: requests at random (some are cancelled, some read slowly, some have deadlines)
while target and draft replicas are killed (SIGKILL) and frozen (SIGSTOP) at random and come back. Every answer is held
against what an undisturbed run says. With emulated engines then: what the draft pool's outage costs. `--real`: the
default target, and its head in the draft service.
"""

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import shared.checkout  # noqa: F401  # finds tests.support
from chaos.clients import Clients, Tally
from chaos.fleet import Fleet
from chaos.plan import SHARES, Plan, Workload, plans
from chaos.strikes import Faults
from chaos.truth import EmulatedTruth, RecordedTruth, Truth
from shared.report import Report, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.config import (
    Config,
    DraftConfig,
    EmulationConfig,
    InTargetDrafterConfig,
    OrchestratorConfig,
    SpeculationConfig,
    TargetConfig,
)
from pilotfish.emulation.profiles import load_profile
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for."""

    requests: int
    kills: int
    concurrency: int
    is_quick: bool

    def plans(self, workload: Workload) -> tuple[list[Plan], list[Plan]]:
        """The requests before the faults and beside them."""
        return plans(max(100, self.requests // 5), 1, workload), plans(self.requests, 3, workload)


PROFILE = "a100-70b"
CONFIG = Config(emulation=EmulationConfig(profile=PROFILE), orchestrator=OrchestratorConfig(slow_reader_tokens=64))
NUM_TARGETS, NUM_DRAFTS, NUM_ORCHESTRATORS = 3, 2, 2
REAL_CONFIG = Config(
    target=TargetConfig(drafter=InTargetDrafterConfig(proposer="none")),
    draft=DraftConfig(proposer="eagle3"),
    # Always drafted: what this machine's two cores gain by it is another question.
    orchestrator=OrchestratorConfig(slow_reader_tokens=64, speculation=SpeculationConfig(mode="on")),
)
NUM_REAL_TARGETS = 2
MIN_ACCEPTED_SHARE = 0.2
"""Share of an answer's tokens that are accepted; less, and the drafter did not take part."""
LET_GO_S = 10.0
"""A replica that was frozen notices its lost peers after a few seconds."""
MEMORY_BOUND = 1.1
OUTAGE_TOKENS = 128
"""Tokens of an answer."""


def memory_mb(fleet: Fleet) -> list[float]:
    """Resident set of each orchestrator."""
    return [psutil.Process(member.pid).memory_info().rss / 1e6 for member in fleet.orchestrators]


def num_handles(fleet: Fleet) -> int:
    """Open files, sockets included, and threads of all orchestrators."""
    processes = [psutil.Process(member.pid) for member in fleet.orchestrators]
    return sum(process.num_fds() + process.num_threads() for process in processes)


async def run_chaos(
    report: Report, fleet: Fleet, truth: Truth, undisturbed: list[Plan], disturbed: list[Plan], options: Options
) -> Tally:
    """Warm up undisturbed, then the same with faults; rows and checks into the report."""
    requests, kills, concurrency = len(disturbed), options.kills, options.concurrency
    addresses = [member.address for member in fleet.orchestrators]
    warm_up, clients = Clients(addresses, truth), Clients(addresses, truth)
    try:
        await warm_up.run(undisturbed, concurrency)
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
        await asyncio.gather(clients.run(disturbed, concurrency), faults.run())
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
    return clients.tally


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


async def run_emulated(report: Report, options: Options) -> None:
    fleet = Fleet(CONFIG, num_targets=NUM_TARGETS, num_drafts=NUM_DRAFTS, num_orchestrators=NUM_ORCHESTRATORS)
    truth = EmulatedTruth(CONFIG)
    undisturbed, disturbed = options.plans(Workload())
    async with fleet:
        await run_chaos(report, fleet, truth, undisturbed, disturbed, options)
        turns, requests = (3, 16) if options.is_quick else (7, 32)
        await run_outage(report, fleet, truth, turns=turns, requests=requests)


async def run_real(report: Report, options: Options) -> None:
    questions = tuple(prompt.text for prompt in load_prompts(per_category=2))
    undisturbed, disturbed = options.plans(Workload(questions, max_tokens=(8, 40), slow_reader_tokens=(80, 160)))
    truth = RecordedTruth(Tokenizer.load(pull_model(REAL_CONFIG.target.model, REAL_CONFIG.cache_dir)))
    fleet = Fleet(REAL_CONFIG, num_targets=NUM_REAL_TARGETS, num_drafts=NUM_DRAFTS, num_orchestrators=NUM_ORCHESTRATORS)
    async with fleet:
        await truth.record(fleet.without_pool.address, [*undisturbed, *disturbed])
        tally = await run_chaos(report, fleet, truth, undisturbed, disturbed, options)
    share = tally.num_accepted_tokens / max(1, tally.num_tokens)
    report.check("accepted draft tokens, of all tokens", share, MIN_ACCEPTED_SHARE, "", "at least")


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--real", action="store_true", help="the default target, its head in the draft service")
    options_parser.add_argument("--requests", type=int, help="default 10,000, with --real 1,000; with --quick 500, 100")
    options_parser.add_argument(
        "--kills", type=int, help="default 20, with --quick 6; half as many freezes come on top"
    )
    options_parser.add_argument("--concurrency", type=int, help="requests at once; default 32, with --real 8")
    given = options_parser.parse_args(arguments)
    options = Options(
        requests=given.requests or ((100 if given.quick else 1_000) if given.real else 500 if given.quick else 10_000),
        kills=(6 if given.quick else 20) if given.kills is None else given.kills,
        concurrency=given.concurrency or (8 if given.real else 32),
        is_quick=given.quick,
    )
    emulated = f"EMULATED {PROFILE}: {load_profile(PROFILE).description}"
    report = Report(
        "Does any failure of a replica reach a client, and is anything left behind?",
        {
            "engines": f"{REAL_CONFIG.target.model}, drafts by {REAL_CONFIG.draft.head}" if given.real else emulated,
            "targets": NUM_REAL_TARGETS if given.real else NUM_TARGETS,
            "drafts": NUM_DRAFTS,
            "orchestrators": NUM_ORCHESTRATORS,
            "requests": options.requests,
            "in flight": options.concurrency,
            "manners": dict(SHARES),
            "cores shared by clients and services": len(os.sched_getaffinity(0)),
        },
    )
    asyncio.run(run_real(report, options) if given.real else run_emulated(report, options))
    report.finish(given)
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
