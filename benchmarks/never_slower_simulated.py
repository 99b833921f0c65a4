"""Is the controller never slower than the better of always off and always on, apart from this machine's noise?

The same loads as `emulated.py --only never-slower`, in virtual time: the orchestrator's own controllers and the
target's own gathering over simulated replicas (profile a100-70b), with a processor that handles one message after the
other and stalls now and then. The same on every machine; a few seconds of every load cost seconds of computing. Every
seed is a fresh start without a cost profile, so what the controller learns at first, and by chance, is in the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial

from report import Report, parser

from orchestrator.control.measurements import Measurements
from orchestrator.requests.request import Mode
from pilotfish.planning.simulated_stack.closed_loop import closed_loop_tokens_per_s
from pilotfish.planning.simulated_stack.controllers import controller
from pilotfish.planning.simulated_stack.stack import SimulatedStack
from pilotfish.planning.simulated_stack.world import BUSY_MACHINE
from pilotfish.profiles import load_profile

PROFILE = load_profile("a100-70b")
MODES: tuple[Mode, ...] = ("off", "on", "auto")
RATES = (0.3, 0.6, 0.9)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128)
AHEAD = (0.0, 0.5)
"""Shares of the drafts that were made ahead."""
MAX_DRAFT_TOKENS = 8
ANSWER_TOKENS = (96, 160, 128)
SEEDS, QUICK_SEEDS = 8, 2
WARM_UP_S = 1.0
SEQUENCE_S = 160.0
"""Virtual seconds of all sequences of a load together, each for between
these times."""
LEAST_S, MOST_S = 6.0, 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    seeds = range(QUICK_SEEDS if options.quick else SEEDS)
    report = Report(
        "Is the controller never slower than the better of always off and always on, apart from this machine's noise?",
        {
            "engines": f"SIMULATED {PROFILE.name}: {PROFILE.description}",
            "noise": str(BUSY_MACHINE),
            "seeds": len(seeds),
        },
    )
    ratios, single = [], []
    for ahead in AHEAD:
        for rate in RATES:
            for concurrency in CONCURRENCIES:
                row = _row(ahead, rate, concurrency, seeds)
                report.row(**row)
                ratios.append(row["auto_over_best"])
                single.append(row["worst_seed"])
    report.check("auto over the better of off and on, tokens/s, worst load", min(ratios), 0.98, kind="at least")
    report.conditions["loads at 0.98 or above"] = f"{sum(ratio >= 0.98 for ratio in ratios)} of {len(ratios)}"
    report.conditions["worst seed of all"] = min(single)
    report.finish(options)
    return 0


def _row(ahead: float, rate: float, concurrency: int, seeds: Sequence[int]) -> dict[str, float]:
    by_seed = []
    for seed in seeds:
        by_seed.append({mode: _tokens_per_s(ahead, rate, concurrency, seed, mode) for mode in MODES})
    mean = {mode: sum(rates[mode] for rates in by_seed) / len(by_seed) for mode in MODES}
    return {
        "made ahead": ahead,
        "acceptance": rate,
        "at once": concurrency,
        **{f"{mode} tok/s": round(tokens_per_s) for mode, tokens_per_s in mean.items()},
        "auto_over_best": round(_ratio(mean), 4),
        "worst_seed": round(min(_ratio(rates) for rates in by_seed), 4),
    }


def _ratio(rates: Mapping[Mode, float]) -> float:
    return rates["auto"] / max(rates["off"], rates["on"])


def _tokens_per_s(ahead: float, rate: float, concurrency: int, seed: int, mode: Mode) -> float:
    return closed_loop_tokens_per_s(
        SimulatedStack(PROFILE, rate, seed, ahead=ahead, noise=BUSY_MACHINE),
        partial(controller, mode, Measurements(), MAX_DRAFT_TOKENS),
        concurrency,
        ANSWER_TOKENS,
        warm_up_s=WARM_UP_S,
        duration_s=min(MOST_S, max(LEAST_S, SEQUENCE_S / concurrency)),
    )


if __name__ == "__main__":
    sys.exit(main())
