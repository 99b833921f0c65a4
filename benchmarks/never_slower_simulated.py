"""Is `auto` never slower than the better of always off and always on, apart from this machine's noise?

Loads of 1 to 128 requests in virtual time: the orchestrator's machines and controllers are the real ones, as are the
replicas' schedulers and batching; what steps take is modelled (profile a100-70b). Some loads are mixtures: 20 to 80 %
of the requests are `off` or `on` whatever is measured, and the tokens of all requests are compared with those where the
rest is off or on as well. Every seed starts with a controller that has measured nothing. A load's figure leaves out the
first second, in which the controller tries what it does not know, and the time that the first prompts of all requests
take (4 s at 128): while they are read, `on` finishes some answers before other prompts have begun, and has more tokens
than `off` for a while, but not in the end. `from_start` includes both. The machine's noise is simulated too: a
processor that handles one message at a time and stalls now and then. `--no-noise` leaves it out. The result is the same
on every machine.
"""

import itertools
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import shared.checkout  # noqa: F401  # finds tests.support
from shared.report import Report, parser

from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import Mode
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from tests.support.simulated_stack.closed_loop import closed_loop_tokens_per_s
from tests.support.simulated_stack.controller_stack import ControllerStack
from tests.support.simulated_stack.controllers import controller
from tests.support.simulated_stack.world import BUSY_MACHINE, Noise

PROFILE = load_profile("a100-70b")
MODES: tuple[Mode, ...] = ("off", "on", "auto")
RATES = (0.3, 0.6, 0.9)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128)
PROMPT_TOKENS = (150, 900, 250, 80, 330, 190, 420)
"""Prompt lengths of requests, in turn: 331 on average."""


class Mixture(NamedTuple):
    """Requests of another mode beside those that are compared, on the same replica."""

    mode: Mode = "off"
    share: float = 0.0
    """Share of all clients."""

    def modes(self, mode: Mode, concurrency: int) -> list[Mode]:
        """Mode of each client, the others spread among those of `mode`."""
        num_others = round(self.share * concurrency)
        before = [number * num_others // concurrency for number in range(concurrency + 1)]
        return [mode if first == last else self.mode for first, last in itertools.pairwise(before)]


class Variant(NamedTuple):
    """A workload. The simulation leaves out what drafts made ahead cost the drafter, and the processor time of sending,
    so real rounds take longer with many sequences at once."""

    ahead: float = 0.0
    """Share of the drafts that were made ahead."""
    prompt_tokens: Sequence[int] = ()
    """Without any they are of four tokens."""
    answered: float = 1.0
    """Share of the passages in which the drafter has an answer at all."""

    def warm_up_s(self, concurrency: int) -> float:
        """Virtual seconds that only `from_start` counts."""
        lengths = itertools.islice(itertools.cycle(self.prompt_tokens or (0,)), concurrency)
        return WARM_UP_S + PROFILE.target.token_s * sum(lengths)


VARIANTS = (Variant(), Variant(0.5), Variant(0.5, PROMPT_TOKENS), Variant(0.0, PROMPT_TOKENS, 0.3))
MIXTURES = tuple(Mixture(mode, share) for mode in ("off", "on") for share in (0.2, 0.3, 0.5, 0.8))
MIXED_CONCURRENCIES = (5, 11, 64)
MAX_DRAFT_TOKENS = 8
ANSWER_TOKENS = (96, 160, 128)
SEEDS, QUICK_SEEDS = 8, 2
WARM_UP_S = 1.0
"""In which the controller tries what it does not know."""
SEQUENCE_S = 160.0
"""Virtual seconds of all sequences of a load together; each load runs for LEAST_S to MOST_S."""
LEAST_S, MOST_S = 6.0, 30.0
COLUMNS = {
    "made ahead": "ahead",
    "prompt tokens": "prompt",
    "answered": "answ.",
    "acceptance": "acc.",
    "at once": "seqs",
    "others": "others",
    "others' share": "share",
    "off tok/s": "off",
    "on tok/s": "on",
    "auto tok/s": "auto",
    "auto_over_best": "ratio",
    "worst_seed": "worst",
    "from_start": "start",
}
ASKED_MEAN, LOW, MAX_LOW_LOADS, LEAST = 1.0, 0.95, 3, 0.9
"""What `auto` over the better of off and on is to be: the mean of all loads, how many may be below LOW, and the
worst."""
MIXED_MEAN, MIXED_LEAST = 0.99, 0.95
"""The same beside requests of other modes."""


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--no-noise", action="store_true", help="a machine that adds nothing to a round")
    options = options_parser.parse_args(arguments)
    seeds = range(QUICK_SEEDS if options.quick else SEEDS)
    noise = None if options.no_noise else BUSY_MACHINE
    report = Report(
        "Is auto never slower than the better of always off and always on, apart from this machine's noise?",
        {
            "engines": f"SIMULATED {PROFILE.name}: {PROFILE.description}",
            "noise": str(noise) if noise else "none",
            "seeds": len(seeds),
        },
        columns=COLUMNS,
    )
    loads = [
        *itertools.product(VARIANTS, (Mixture(),), RATES, CONCURRENCIES),
        *itertools.product((Variant(),), MIXTURES, RATES, MIXED_CONCURRENCIES),
    ]
    with ProcessPoolExecutor() as processes:
        for row in processes.map(partial(_row, seeds, noise), loads):
            report.row(**row)
    _check(report)
    report.finish(options)
    return 0


def _check(report: Report) -> None:
    """Check the ratios over all loads."""
    ratios = [row["auto_over_best"] for row in report.rows if not row["others' share"]]
    mixed = [row["auto_over_best"] for row in report.rows if row["others' share"]]
    name = "auto over the better of off and on, tokens/s"
    report.check(f"{name}, mean of {len(ratios)} loads", statistics.fmean(ratios), ASKED_MEAN, kind="at least")
    report.check(f"loads below {LOW}", sum(ratio < LOW for ratio in ratios), MAX_LOW_LOADS, "loads")
    report.check(f"{name}, worst load", min(ratios), LEAST, kind="at least")
    beside = "beside other modes"
    report.check(f"{name}, {beside}, mean of {len(mixed)} loads", statistics.fmean(mixed), MIXED_MEAN, kind="at least")
    report.check(f"{name}, {beside}, worst load", min(mixed), MIXED_LEAST, kind="at least")
    report.conditions["worst seed of all"] = min(row["worst_seed"] for row in report.rows)
    report.conditions["worst load from the start"] = min(row["from_start"] for row in report.rows)


def _row(
    seeds: Sequence[int], noise: Noise | None, load: tuple[Variant, Mixture, float, int]
) -> dict[str, float | str]:
    variant, mixture, rate, concurrency = load
    runs = [
        {mode: _tokens_per_s(variant, rate, mixture.modes(mode, concurrency), seed, noise) for mode in MODES}
        for seed in seeds
    ]
    warm = [{mode: after for mode, (after, _) in run.items()} for run in runs]
    whole = [{mode: all_of_it for mode, (_, all_of_it) in run.items()} for run in runs]
    mean = _mean(warm)
    return {
        "made ahead": variant.ahead,
        "prompt tokens": round(sum(variant.prompt_tokens) / max(1, len(variant.prompt_tokens))),
        "answered": variant.answered,
        "acceptance": rate,
        "at once": concurrency,
        "others": mixture.mode if mixture.share else "",
        "others' share": mixture.share,
        **{f"{mode} tok/s": round(tokens_per_s) for mode, tokens_per_s in mean.items()},
        "auto_over_best": round(_ratio(mean), 4),
        "worst_seed": round(min(_ratio(rates) for rates in warm), 4),
        "from_start": round(_ratio(_mean(whole)), 4),
    }


def _mean(by_seed: Sequence[Mapping[Mode, float]]) -> dict[Mode, float]:
    return {mode: sum(rates[mode] for rates in by_seed) / len(by_seed) for mode in MODES}


def _ratio(rates: Mapping[Mode, float]) -> float:
    return rates["auto"] / max(rates["off"], rates["on"])


def _tokens_per_s(
    variant: Variant, rate: float, modes: Sequence[Mode], seed: int, noise: Noise | None
) -> tuple[float, float]:
    """Tokens a second of all requests, after the warm-up, and with it. modes: each client's."""
    state = ControlState(SpeculationConfig())
    stack = ControllerStack(PROFILE, rate, seed, noise=noise, **variant._asdict())
    after_warm_up = closed_loop_tokens_per_s(
        stack,
        [partial(controller, mode, state, MAX_DRAFT_TOKENS) for mode in modes],
        ANSWER_TOKENS,
        warm_up_s=variant.warm_up_s(len(modes)),
        duration_s=min(MOST_S, max(LEAST_S, SEQUENCE_S / len(modes))),
    )
    return after_warm_up, stack.num_tokens / stack.world.now_s


if __name__ == "__main__":
    sys.exit(main())
