"""What is a separate draft model worth to a larger target of its family, drafting ahead from the draft service?

There is no such pair of real models on this machine, so the target is made here: the default model with its blocks
repeated `--factor` times, all but one of each with output projections of zero. It computes what the default model
computes, to the bit, with the factor's work: real kernels, real text, known answers. It is no model to serve, and its
acceptance says nothing about other pairs:

- `default model` drafts all that its own target says. It is an upper bound: what the work around drafts leaves of it.
- `int4 copy` is the default model with 4-bit weights and 8-bit activations: the figure that counts. Its errors are a
  real drafter's but few, as the default model's weights came from 4-bit ones.
- `trained exit` (`--exit FOLDER`: one that `pilotfish train early_exit` made for the default model) drafts in the
  target, with the same hidden states after the factor's blocks. It has no step of its own to time, so no formula.

Beside what is measured stands the formula (Leviathan et al. 2211.17192): (1 - a^(K+1)) / (1 - a) tokens in K draft
steps and a verification, both timed alone on this machine, at the measured acceptance a of a draft token. It drafts on
request: drafting ahead may be faster.
"""

import gc
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from shared.deep_model import deepened, deepened_exit
from shared.real_models import asked, options_parser, target_folder
from shared.report import Report, dataset_name

from pilotfish.bench.metrics import Row
from pilotfish.bench.prompts import Prompt
from pilotfish.bench.proposers import Proposer
from pilotfish.bench.result import Result, result_of
from pilotfish.bench.runner import Sample
from pilotfish.bench.suite import STACK_DEFAULTS, Settings, Station, run_stations, stations_of
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.config import Config, load_config
from pilotfish.emulation.cost_measurement import ShapeTimes
from pilotfish.engine.process.factory import build_engine
from pilotfish.engine.process.wire import Role
from pilotfish.speculation.cost import expected_tokens_by_position

UPPER_BOUND, COUNTS = "default model (upper bound)", "int4 copy"
DRAFTERS: Mapping[str, tuple[str, ...]] = {UPPER_BOUND: (), COUNTS: ("draft.engine.quantization=int4",)}
"""The default model in the draft service, by what is set apart from the rest."""
EXIT = "trained exit"
TEMPERATURES = (0.0, 0.7)
LEAST_OF_FORMULA = 0.85
"""Asked of what is measured: rounds cost messages, too."""
_CONTEXT_TOKENS, _SAMPLES = 128, 15


class StepTimes(NamedTuple):
    """Seconds of steps of one sequence, each engine alone on the machine."""

    plain: float
    verify: float
    """A step with K drafts."""
    draft: float


def step_times(configs: Mapping[str, Config], num_draft_tokens: int) -> dict[str, StepTimes]:
    """Median times of each drafter and of the target, which all have in common."""
    plain, verify = _timed(next(iter(configs.values())), "target", (1, num_draft_tokens + 1))
    return {name: StepTimes(plain, verify, *_timed(config, "draft", (0,))) for name, config in configs.items()}


def _timed(config: Config, role: Role, shapes: Sequence[int]) -> list[float]:
    """Seconds of a step by its rows; 0 rows: of a draft step."""
    timer = ShapeTimes(build_engine(config, role), time.perf_counter)
    with timer.opened(1, _CONTEXT_TOKENS) as sequences:
        medians = [
            statistics.median(
                timer.verify_s(sequences, rows) if rows else timer.draft_step_s(sequences) for _ in range(_SAMPLES)
            )
            for rows in shapes
        ]
    del timer
    gc.collect()
    return medians


def token_acceptance(row: Row, num_draft_tokens: int) -> float:
    """Probability that a draft token is accepted if those before it were: accepted over all that were looked at."""
    drafts = row.drafts
    if drafts is None or drafts.mean_acceptance_length is None or not drafts.num_accepted_tokens:
        return 0.0
    num_rounds = drafts.num_accepted_tokens / (drafts.mean_acceptance_length - 1)
    whole = drafts.acceptance_per_position[num_draft_tokens - 1 : num_draft_tokens] or (0.0,)
    return drafts.num_accepted_tokens / (drafts.num_accepted_tokens + num_rounds * (1 - whole[0]))


def by_formula(acceptance: float, k: int, steps: StepTimes) -> dict[str, float]:
    """Figures of a row."""
    tokens = expected_tokens_by_position((acceptance,), k)
    return {
        "formula_tokens": tokens,
        "formula_speed_up": tokens * steps.plain / (k * steps.draft + steps.verify),
        "plain_step_ms": steps.plain * 1e3,
        "verify_ms": steps.verify * 1e3,
        "draft_step_ms": steps.draft * 1e3,
    }


def add_rows(report: Report, result: Result, times: Mapping[str, StepTimes], temperature: float, k: int) -> None:
    """One for each drafter. times: of those that have a formula."""
    overall = {row.arm: row for row in result.overall}
    for arm, row in overall.items():
        name = arm.removesuffix(f" K={k}")
        if name == arm:
            continue
        acceptance = token_acceptance(row, k)
        formula = by_formula(acceptance, k, times[name]) if name in times else {}
        report.row(
            drafter=name,
            temperature=temperature,
            K=k,
            tokens_per_s=row.tokens_per_s,
            plain_tokens_per_s=overall[result.baseline].tokens_per_s,
            speed_up=row.speed_up,
            acceptance=acceptance,
            tokens_per_step=None if row.drafts is None else row.drafts.tokens_per_step,
            **formula,
            ttft_ms=row.ttft_ms,
            num_differing=row.num_answers - row.num_identical,
        )
        if formula:
            where = f"{name}, temperature {temperature:g}, K={k}: speed-up over the formula's"
            report.check(where, (row.speed_up or 0.0) / formula["formula_speed_up"], LEAST_OF_FORMULA, kind="at least")


def num_differing(deep: Sequence[Sample], shallow: Sequence[Sample]) -> int:
    """Greedy answers of the deep target, plain, that are not the default model's."""
    said = {sample.prompt_index: sample.measurement.token_ids for sample in shallow}
    plain = [sample for sample in deep if sample.arm == "plain"]
    return sum(sample.measurement.token_ids != said[sample.prompt_index] for sample in plain)


def shallow_samples(prompts: Sequence[Prompt], settings: Settings, progress: BenchProgress) -> list[Sample]:
    """The default model's own answers, without drafts."""
    config = load_config(overrides=[*STACK_DEFAULTS, "target.drafter.proposer=none"])
    return run_stations([Station(proposers=(), config=config)], prompts, settings, progress=progress).samples


def main(arguments: Sequence[str] | None = None) -> int:
    deep_parser = options_parser(__doc__, lengths=(5,))
    deep_parser.set_defaults(prompts=1)
    deep_parser.add_argument("--factor", type=int, default=4, help="times the default model's blocks (default 4)")
    deep_parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=list(DRAFTERS))
    deep_parser.add_argument("--exit", type=Path, metavar="FOLDER", help="a trained exit of the default model, too")
    options = deep_parser.parse_args(arguments)
    default = load_config()
    source = target_folder(default)
    cache = Path(default.cache_dir).expanduser() / "benchmarks"
    folder = deepened(source, cache / f"{source.name}-x{options.factor}", options.factor)
    common = (f"target.model={folder}", "orchestrator.speculation.tree_nodes=0")
    model = ("draft.proposer=model", f"draft.model={default.target.model}")
    proposers = [Proposer(name, "draft", (*common, *model, *DRAFTERS[name])) for name in options.drafters]
    separate = list(proposers)
    if options.exit:
        exit_folder = deepened_exit(options.exit, cache / f"exit-x{options.factor}", options.factor)
        own = ("target.drafter.proposer=early_exit", f"target.drafter.model={exit_folder}")
        proposers.append(Proposer(EXIT, "early_exit", (*common, *own)))

    def configure(extra: Sequence[str]) -> Config:
        return load_config(overrides=[*STACK_DEFAULTS, *extra, *options.set])

    report = Report("What is a separate draft model worth to a larger target of its family?", {})
    configs = {proposer.name: configure(proposer.overrides) for proposer in separate}
    times = {k: step_times(configs, k) for k in options.k}
    for temperature in TEMPERATURES:
        options.temperature = temperature
        prompts, settings = asked(options, with_auto=False)
        with BenchProgress(Console(stderr=True)) as progress:
            run = run_stations(stations_of(proposers, configure), prompts, settings, progress=progress)
            shallow = [] if temperature else shallow_samples(prompts, settings, progress)
        result = result_of(run, settings, prompts_from=dataset_name(options), overrides=options.set)
        report.conditions |= {**result.conditions, "factor": options.factor, "sampling": "greedy, and 0.7 coupled"}
        for k in options.k:
            add_rows(report, result, times[k], temperature, k)
        if shallow:
            differing = num_differing(run.samples, shallow)
            report.check("deep target's answers that are not the default model's", differing, 0, "", "equal to")
    num_wrong = sum(row["num_differing"] for row in report.rows)
    report.check("answers that differ from plain decoding's", num_wrong, 0, "", "equal to")
    report.columns = {
        "drafter": "drafter",
        "temperature": "temp.",
        "tokens_per_s": "tok/s",
        "plain_tokens_per_s": "plain",
        "speed_up": "speed-up",
        "acceptance": "acc.",
        "tokens_per_step": "tokens a step",
        "formula_tokens": "by formula",
        "formula_speed_up": "speed-up by formula",
    }
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
