"""Does `pilotfish examine` foretell what a drafter makes of the speed?

Twelve drafters with K draft tokens: tokens/s of all requests at 1, 4 and 8 requests, first predicted from one half of
the prompts (and written to `--predictions FILE`, if it is named, before any drafter is measured), then measured over
the services with the other half, greedily. To the predicted decoding comes what the target's steps take for the
prompts, and what the services take of a step: of plain decoding with the first half, which the examination says
nothing of.

`--early-exit FOLDER`: weights of a trained exit; `--other-vocabulary MODEL`: a draft model of another vocabulary;
`--network-ms MS`: a head in the draft service, with that round trip (`benchmarks/round_time.py` measures it). They are
left out without. `--only NAME ...` takes some. `--quick` takes four drafters, shorter answers and fewer of them.
"""

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examination.errors import DRAFT_SERVICE, TARGET, add_checks
from rich.console import Console
from shared.report import Report, parser

from pilotfish.bench.load.point import LoadPoint
from pilotfish.bench.load.suite import LoadSettings, run_load
from pilotfish.bench.load.workload import parse_lengths
from pilotfish.bench.prompts import Prompt, load_prompts
from pilotfish.bench.suite import STACK_DEFAULTS, Station
from pilotfish.chat import ChatMessage
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import Config, load_config
from pilotfish.examine.drafters import parse_drafters
from pilotfish.examine.examine import examine
from pilotfish.examine.questions import Order
from pilotfish.examine.result import DrafterResult
from pilotfish.models.store.pull import tokenizer_folder
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.planning.planner import ROUND_TRIP_S
from pilotfish.step_table import StepTable

K, LOADS, TIMEOUT_S = 4, (1, 4, 8), 600.0
MEDUSA = "models/smollm2-135m-instruct-medusa"


@dataclass(frozen=True)
class Arm:
    """A drafter as it is examined, and as it is served."""

    name: str
    examined: str
    proposer: str
    overrides: tuple[str, ...]
    is_tree: bool = False
    is_remote: bool = False


def arms_of(options: argparse.Namespace) -> list[Arm]:
    """Those that are wanted."""
    arms = [
        *_in_target("eagle3", "eagle3", "target.drafter.proposer=eagle3"),
        *_in_target("suffix", "suffix", "target.drafter.proposer=none", "target.drafter.lookup=suffix"),
        *_in_target("ngram", "ngram", "target.drafter.proposer=none", "target.drafter.lookup=ngram")[:1],
        *_in_target("medusa", f"medusa={MEDUSA}", "target.drafter.proposer=medusa", f"target.drafter.model={MEDUSA}"),
        _model("int4 copy", "smollm2-135m-instruct", "draft.engine.quantization=int4"),
        _model("int8 copy", "smollm2-135m-instruct", "draft.engine.quantization=int8"),
    ]
    if options.early_exit:
        settings = "target.drafter.proposer=early_exit", f"target.drafter.model={options.early_exit}"
        arms += _in_target("early_exit", f"early_exit={options.early_exit}", *settings)
    if options.other_vocabulary:
        arms.append(_model("other vocabulary", options.other_vocabulary, "draft.vocabulary=auto"))
    if options.network_ms is not None:
        settings = ("draft.proposer=eagle3", "draft.head=smollm2-135m-instruct-eagle3")
        arms.append(Arm("eagle3 remote", "eagle3", "draft", (*PLAIN.overrides, *settings), is_remote=True))
    names = [arm.name for arm in arms]
    if unknown := set(options.only or ()).difference(names):
        sys.exit(f"--only: there is no {', '.join(sorted(unknown))}. There are, with these options: {', '.join(names)}")
    wanted = options.only or (["eagle3", "eagle3 tree", "suffix", "int4 copy"] if options.quick else None)
    return [arm for arm in arms if wanted is None or arm.name in wanted]


PLAIN = Arm("plain", "", "", ("target.drafter.proposer=none", "target.drafter.lookup=none"))


def _in_target(name: str, examined: str, *overrides: str) -> list[Arm]:
    """Its chains, and its trees."""
    trees = f"{name} tree", examined, name, (*overrides, "orchestrator.speculation.tree_nodes=auto")
    chains = name, examined, name, (*overrides, "orchestrator.speculation.tree_nodes=0")
    return [Arm(*chains), Arm(*trees, is_tree=True)]


def _model(name: str, model: str, *overrides: str) -> Arm:
    settings = ("target.drafter.proposer=none", "target.drafter.lookup=none", "draft.proposer=model")
    chains = "orchestrator.speculation.tree_nodes=0"  # what is predicted
    return Arm(name, f"model={model}", "draft", (*settings, chains, f"draft.model={model}", *overrides))


def configured(arm: Arm, *overrides: str) -> Config:
    """Its services' configuration."""
    return load_config(overrides=[*STACK_DEFAULTS, *arm.overrides, *overrides])


@dataclass(frozen=True)
class Predicted:
    """Tokens/s of decoding by load, plainly and with K drafts, and what a prompt of so many tokens takes before."""

    result: DrafterResult
    rates: dict[int, tuple[float, float]]
    tokens_per_step: dict[int, float]
    is_remote: bool
    """Whether it drafts in a draft service."""

    @classmethod
    def of(cls, arm: Arm, result: DrafterResult) -> "Predicted":
        rates, tokens = {}, {}
        for speed in result.speeds:
            if arm.is_remote:
                by_length, tokens_by_length = speed.by_remote_draft_tokens, result.overall.tokens_per_round
            elif arm.is_tree:
                by_length, tokens_by_length = speed.by_depth_of_trees, speed.tokens_by_depth_of_trees
            else:
                by_length, tokens_by_length = speed.by_draft_tokens, speed.tokens_by_draft_tokens
            if speed.num_requests in LOADS:
                longest = min(K, len(by_length) - 1)
                rates[speed.num_requests] = by_length[0], by_length[longest]
                tokens[speed.num_requests] = tokens_by_length[longest]
        return cls(result, rates, tokens, is_remote=arm.proposer == "draft")

    def tokens_per_s(
        self, load: int, prompt_lens: Sequence[int], num_tokens: float, services_s: float = 0.0
    ) -> tuple[float, float]:
        """Prompts included, of answers of so many tokens on average: plainly and with drafts. services_s: what the
        services take of a step of one request."""
        prompt_s = _mean_step_s(self.result.steps, prompt_lens)
        (plain_rate, rate), tokens = self.rates[load], self.tokens_per_step[load]
        plain_s = (num_tokens - 1) * (1 / plain_rate + services_s)
        drafted_s = self._num_rounds(load, num_tokens) * (tokens / rate + services_s)
        if self.is_remote and self.result.shares_processors:  # its drafter reads prompts on the target's processors
            drafted_s += _mean_step_s(self.result.passes, prompt_lens)
        return num_tokens / (plain_s + prompt_s), num_tokens / (drafted_s + prompt_s)

    def tokens_a_step(self, load: int, num_tokens: float) -> float:
        """Of answers of so many tokens, the step of the prompt included."""
        return num_tokens / (1 + self._num_rounds(load, num_tokens))

    def _num_rounds(self, load: int, num_tokens: float) -> float:
        """The first token comes with the prompt; half of the last round's drafts come after the end."""
        tokens = self.tokens_per_step[load]
        return (num_tokens - 1 + (tokens - 1) / 2) / tokens


def _mean_step_s(table: StepTable, num_rows: Sequence[int]) -> float:
    return statistics.fmean(table.step_s(each) for each in num_rows)


def predict(arms: Sequence[Arm], prompts: Sequence[Prompt], options: argparse.Namespace) -> dict[str, Predicted]:
    """By the arms' names. A drafter's chains and trees are examined together."""
    results: dict[tuple[str, ...], DrafterResult] = {}
    predicted = {}
    for arm in arms:
        key = arm.examined, *(setting for setting in arm.overrides if "tree_nodes" not in setting)
        if key not in results:
            config = configured(arm)
            order = Order(
                config=config,
                drafters=parse_drafters([arm.examined], config),
                prompts=prompts,
                max_tokens=options.max_tokens,
                num_draft_tokens=K,
                temperature=0.0,
                round_trip_s=ROUND_TRIP_S if options.network_ms is None else options.network_ms / 1e3,
            )
            (results[key],) = examine(order).drafters
        predicted[arm.name] = Predicted.of(arm, results[key])
    return predicted


def services_s(
    predicted: Predicted, prompts: Sequence[Prompt], prompt_lens: Sequence[int], options: argparse.Namespace
) -> dict[int, float]:
    """What the services take of a step of one request, by load: by how much plain decoding is slower than predicted."""
    taken = {}
    for (load, _), point in measure(PLAIN, prompts, options, modes=("off",)).items():
        num_tokens = point.output_tokens_per_s / point.requests_per_s
        plain, _ = predicted.tokens_per_s(load, prompt_lens, num_tokens)
        taken[load] = (1 / point.output_tokens_per_s - 1 / plain) * num_tokens / (num_tokens - 1)
    return taken


def measure(
    arm: Arm, prompts: Sequence[Prompt], options: argparse.Namespace, modes: tuple[str, ...] = ("off", "on")
) -> dict[tuple[int, str], LoadPoint]:
    """By load and mode."""
    settings = LoadSettings(
        concurrencies=options.loads,
        modes=modes,
        options=GenerateOptions(temperature=0, proposer=arm.proposer, num_speculative_tokens=K),
        prompts=[prompt.text for prompt in prompts],
        output_lengths=parse_lengths(str(options.max_tokens)),
        num_requests=max(len(prompts), 2 * max(options.loads)),
        num_turns=options.turns,
        timeout_s=TIMEOUT_S,
    )
    with BenchProgress(Console(stderr=True)) as progress:
        result = run_load(Station(proposers=(), config=configured(arm)), settings, progress)
    return {(point.concurrency, point.mode): point for point in result.points}


def add_rows(
    report: Report,
    arm: Arm,
    predicted: Predicted,
    points: dict[tuple[int, str], LoadPoint],
    prompt_lens: Sequence[int],
    taken_s: dict[int, float],
) -> None:
    """A row for each load. taken_s: see services_s."""
    for load in dict.fromkeys(load for load, _ in points):
        off, on = points[load, "off"], points[load, "on"]
        num_tokens = off.output_tokens_per_s / off.requests_per_s
        plain, drafted = predicted.tokens_per_s(load, prompt_lens, num_tokens, taken_s[load])
        report.row(
            drafter=arm.name,
            place=DRAFT_SERVICE if arm.proposer == "draft" else TARGET,
            requests=load,
            services_ms=1e3 * taken_s[load],
            predicted=drafted,
            measured=on.output_tokens_per_s,
            error=drafted / on.output_tokens_per_s - 1,
            plain_predicted=plain,
            plain_measured=off.output_tokens_per_s,
            plain_error=plain / off.output_tokens_per_s - 1,
            speed_up_predicted=drafted / plain,
            speed_up_measured=on.output_tokens_per_s / off.output_tokens_per_s,
            tokens_predicted=predicted.tokens_a_step(load, num_tokens),
            tokens_measured=on.drafts.tokens_per_step if on.drafts else None,
            missed_deadlines=on.drafts.num_missed_deadlines if on.drafts else None,
        )


def halves(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[Prompt]]:
    """Of each category."""
    parts: tuple[list[Prompt], list[Prompt]] = [], []
    seen: Counter[str] = Counter()
    for prompt in prompts:
        parts[seen[prompt.category] % 2].append(prompt)
        seen[prompt.category] += 1
    return parts


def lengths_of(prompts: Sequence[Prompt]) -> list[int]:
    """Tokens of each, as a chat."""
    config = load_config()
    tokenizer = Tokenizer.load(tokenizer_folder(config.target.model, config.cache_dir))
    return [len(tokenizer.apply_chat_template((ChatMessage("user", prompt.text),))) for prompt in prompts]


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--prompts", type=int, default=4, help="of each category, half of them examined")
    options_parser.add_argument("--max-tokens", type=int, default=64)
    options_parser.add_argument("--turns", type=int, default=3)
    options_parser.add_argument("--only", nargs="+", metavar="NAME")
    options_parser.add_argument("--early-exit", default="", metavar="FOLDER")
    options_parser.add_argument("--other-vocabulary", default="", metavar="MODEL")
    options_parser.add_argument("--network-ms", type=float, metavar="MS")
    options_parser.add_argument("--predictions", type=Path, metavar="FILE")
    options = options_parser.parse_args(arguments)
    options.loads = LOADS[:2] if options.quick else LOADS
    if options.quick:
        options.prompts, options.max_tokens, options.turns = 2, 48, 1
    prompts = load_prompts(options.dataset, per_category=options.prompts)
    known, others = halves(prompts)
    arms = arms_of(options)
    predictions = predict(arms, known, options)
    taken_s = services_s(predictions[arms[0].name], known, lengths_of(known), options)
    if options.predictions:
        written = {"services_s": taken_s} | {name: predicted.rates for name, predicted in predictions.items()}
        options.predictions.write_text(json.dumps(written, indent=1) + "\n")
    conditions = {"K": K, "prompts": f"{len(known)} to predict, {len(others)} to measure", "sampling": "greedy"}
    report = Report("Does `pilotfish examine` foretell what a drafter makes of the speed?", conditions)
    for arm in arms:
        add_rows(report, arm, predictions[arm.name], measure(arm, others, options), lengths_of(others), taken_s)
    add_checks(report)
    report.columns = {
        "drafter": "drafter",
        "requests": "requests",
        "predicted": "predicted tok/s",
        "measured": "measured",
        "error": "error",
        "plain_error": "error plain",
        "speed_up_predicted": "speed-up predicted",
        "speed_up_measured": "measured",
        "tokens_predicted": "tokens a step predicted",
        "tokens_measured": "measured",
    }
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
