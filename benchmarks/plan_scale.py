"""What does `pilotfish plan` cost for thousands of replicas and millions of requests?

Fleets of 4 to 4,000 target replicas under the same load each (profile a100-70b, drafters on replicas of their own, K by
the batch) are simulated one after the other in this process. Seconds are this machine's; the ratio of what a request
costs in a large fleet to what it costs in a small one is not. What comes out is held against mean values
(`pilotfish/planning/steady_state.py`), which are found without a simulation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter

import psutil
from report import Report, parser

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.planning.drafting import Drafting, Placement
from pilotfish.planning.outcome import Outcome, quantile
from pilotfish.planning.planner import WARM_UP_SHARE, Fleet, Planner
from pilotfish.planning.steady_state import steady_state
from pilotfish.planning.workload import PoissonWorkload
from pilotfish.profiles import load_profile

PROFILE = "a100-70b"
PROMPT_LENGTHS, OUTPUT_LENGTHS = "lognormal:300,0.8,4000", "lognormal:200,0.6,2000"
RATE = 4.0
"""Requests per second of each target replica."""
FLEETS = ((4, 100_000), (250, 1_000_000), (1_000, 1_000_000), (4_000, 4_000_000))
"""Target replicas and requests."""
QUICK_FLEETS = ((4, 20_000), (250, 100_000))
TARGETS_PER_DRAFTER = 4
MAX_COST_RATIO = 2.0
MAX_ERROR = 0.10


def planner() -> Planner:
    """For the load of one target replica."""
    lengths = parse_lengths(PROMPT_LENGTHS), parse_lengths(OUTPUT_LENGTHS)
    return Planner(profile=load_profile(PROFILE), drafting=Drafting(), workload=PoissonWorkload(RATE, *lengths))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    report = Report(
        "What does planning cost for thousands of replicas and millions of requests?",
        {
            "profile": PROFILE,
            "requests/s of a target": RATE,
            "prompt tokens": PROMPT_LENGTHS,
            "answer tokens": OUTPUT_LENGTHS,
            "targets per drafter": TARGETS_PER_DRAFTER,
        },
    )
    of_one, costs_us = planner(), []
    for num_targets, num_requests in QUICK_FLEETS if options.quick else FLEETS:
        plan = of_one.scaled(num_targets)
        plan.num_requests = num_requests
        costs_us.append(_add_fleet(report, plan, num_targets))
    report.check("cost of a request, largest fleet over smallest", costs_us[-1] / costs_us[0], MAX_COST_RATIO)
    report.finish(options)
    return 0


def _add_fleet(report: Report, plan: Planner, num_targets: int) -> float:
    """Returns the microseconds that a request took to simulate."""
    fleet = Fleet(Placement.SEPARATE, num_targets, num_targets // TARGETS_PER_DRAFTER)
    plan.rates_of(fleet)  # simulated step by step, once for all fleets of a shape
    before_bytes, started_s = psutil.Process().memory_info().rss, perf_counter()
    outcome = plan.simulate(fleet)
    elapsed_s = perf_counter() - started_s
    grown_mb = (psutil.Process().memory_info().rss - before_bytes) / 1e6
    report.row(
        targets=num_targets,
        requests=plan.num_requests,
        seconds=elapsed_s,
        us_per_request=1e6 * elapsed_s / plan.num_requests,
        memory_mb=grown_mb,
        simulated_s=outcome.duration_s,
        batch=outcome.mean_decoding,
        tokens_per_s=outcome.tokens_per_s,
        ttft_p99_ms=1e3 * quantile(outcome.first_token_s, 0.99),
    )
    _check_outcome(report, plan, fleet, outcome)
    return 1e6 * elapsed_s / plan.num_requests


def _check_outcome(report: Report, plan: Planner, fleet: Fleet, outcome: Outcome) -> None:
    name = f"{fleet.num_targets} targets"
    num_counted = plan.num_requests - int(WARM_UP_SHARE * plan.num_requests)
    report.check(f"{name}: requests lost", num_counted - outcome.num_finished, 0, "", "equal to")
    offered = plan.workload.rate * plan.workload.mean_output_tokens
    report.check(f"{name}: output tokens/s off what is offered", abs(outcome.tokens_per_s / offered - 1), MAX_ERROR, "")
    state = steady_state(plan.rates_of(fleet), plan.workload, RATE)
    if state is not None:
        token_s = sum(outcome.token_s) / len(outcome.token_s)
        report.check(f"{name}: time per token off mean values'", abs(token_s / state.token_s - 1), MAX_ERROR, "")


if __name__ == "__main__":
    sys.exit(main())
