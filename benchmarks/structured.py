"""Is every answer to a random JSON schema valid, is it the same with and without speculation, and what do masks cost?

Each schema is asked for in a chat, greedily and with coupled sampling under a seed, plainly and with the drafts of
each proposer. Answers that max_tokens cut off are counted apart: they are no fault of the grammar's.
The cost is the time per token that masks add to plain decoding of one sequence.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import checkout  # noqa: F401  # finds tests.support
from asking import Answer, ask_all, chat_request
from jsonschema import Draft202012Validator
from report import Report, parser

from pilotfish.bench.proposers import Proposer, parse_proposers
from pilotfish.config import Config, load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.models.pull import pull_model
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.rpc.conversion import grammar_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import FinishReason, Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema

NUM_SCHEMAS, QUICK_SCHEMAS = 200, 16
MAX_TOKENS = 512
IN_FLIGHT = 8
K = 5
SAMPLINGS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "coupled, temperature 0.8": {"temperature": 0.8, "seed": 20261},
}
PROPOSERS = ("ngram-remote", "eagle3-suffix-tree=models/smollm2-135m-instruct-eagle3")
"""One that knows nothing of grammars and drafts chains; one beside the target, which masks its own trees."""


def requests_of(
    schemas: Sequence[dict[str, Any]], options: pb.SpeculationOptions, sampling: dict[str, float]
) -> list[pb.GenerateRequest]:
    return [
        chat_request(
            f"Answer with a JSON document that follows this schema: {json.dumps(schema)}",
            max_tokens=MAX_TOKENS,
            speculation=options,
            grammar=grammar_to_proto(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))),
            **sampling,
        )
        for schema in schemas
    ]


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    """Whether it is a document of the schema."""
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except ValueError:
        return False


class Comparison:
    """The answers of all arms, held against the plain ones."""

    def __init__(
        self,
        report: Report,
        schemas: Sequence[dict[str, Any]],
        tokenizer: Tokenizer,
        samplings: Mapping[str, dict[str, float]],
    ) -> None:
        self._report = report
        self._schemas = schemas
        self._tokenizer = tokenizer
        self._samplings = samplings
        self._plain: dict[str, list[Answer]] = {}

    def run(self, proposer: Proposer, address: str, runner: asyncio.Runner) -> None:
        """Plain answers with the first proposer's stack, then those with drafts."""
        plain = pb.SpeculationOptions(mode=pb.SPECULATION_MODE_OFF)
        drafted = pb.SpeculationOptions(
            mode=pb.SPECULATION_MODE_ON, num_speculative_tokens=K, proposer=proposer.request_name
        )
        for name, sampling in self._samplings.items():
            arms = {} if name in self._plain else {"off": plain}
            for arm, options in {**arms, proposer.name: drafted}.items():
                start = time.perf_counter()
                answers = runner.run(ask_all(address, requests_of(self._schemas, options, sampling), IN_FLIGHT))
                self._add(name, arm, answers, time.perf_counter() - start)

    def _add(self, name: str, arm: str, answers: list[Answer], wall_s: float) -> None:
        plain = self._plain.setdefault(name, answers)
        texts = [self._tokenizer.decode(answer.token_ids) for answer in answers]
        num_valid = sum(is_valid(text, schema) for text, schema in zip(texts, self._schemas, strict=True))
        num_cut = sum(answer.summary.finish_reason == FinishReason.LENGTH for answer in answers)
        num_different = sum(a.token_ids != b.token_ids for a, b in zip(plain, answers, strict=True))
        drafted = sum(answer.summary.speculation.num_draft_tokens for answer in answers)
        accepted = sum(answer.summary.speculation.num_accepted_tokens for answer in answers)
        self._report.row(
            sampling=name,
            drafts=arm,
            schemas=len(answers),
            valid=num_valid,
            cut_off=num_cut,
            differ=num_different,
            tokens_per_s=sum(len(answer.token_ids) for answer in answers) / wall_s,
            accepted_of_drafted=f"{accepted}/{drafted}",
        )
        label = f"{name}; drafts {arm}"
        print(f"{label}: {num_valid} of {len(answers)} valid, {num_different} differ, {wall_s:.0f} s", file=sys.stderr)
        self._report.check(f"{label}: valid", num_valid, len(answers), "answers", "equal to")
        if arm != "off":
            self._report.check(f"{label}: differ from plain", num_different, 0, "answers", "equal to")
            self._report.check(f"{label}: accepted drafts", accepted, 1, "drafts", "at least")


def measure_masks(report: Report, address: str, runner: asyncio.Runner, samples: int) -> None:
    """Milliseconds a token, plain, one sequence: with a grammar that allows everything and without one, in turns."""
    anything = grammar_to_proto(Grammar(GrammarKind.REGEX, "(?s:.*)"))
    prompt, sampling = "Write a long story about the sea.", {"temperature": 0.0, "max_tokens": 64}
    options = pb.SpeculationOptions(mode=pb.SPECULATION_MODE_OFF)
    times: dict[str, list[float]] = {"free": [], "masked": []}
    for _ in range(samples):
        for arm, fields in (("free", {}), ("masked", {"grammar": anything})):
            request = chat_request(prompt, speculation=options, **sampling, **fields)
            (answer,) = runner.run(ask_all(address, [request], 1))
            summary = answer.summary
            decode_ns = summary.timings.total_time_ns - summary.timings.time_to_first_token_ns
            times[arm].append(decode_ns / 1e6 / max(1, len(answer.token_ids) - 1))
    free, masked = (statistics.median(times[arm]) for arm in ("free", "masked"))
    report.row(sampling="greedy", drafts="off, one in flight", ms_per_token_free=free, ms_per_token_masked=masked)
    report.check("a mask's cost per step", masked - free, 1.0, "ms")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments_parser = parser(__doc__)
    arguments_parser.add_argument("--proposers", nargs="+", default=PROPOSERS, metavar="NAME[=FOLDER]")
    arguments_parser.add_argument("--sampling", help="only samplings named like this")
    options = arguments_parser.parse_args(arguments)
    schemas = [random_object_schema(seed) for seed in range(QUICK_SCHEMAS if options.quick else NUM_SCHEMAS)]
    config: Config = load_config()
    tokenizer = Tokenizer.load(pull_model(config.target.model, config.cache_dir))
    report = Report(
        "Are answers to JSON schemas valid, and the same with speculation?",
        {"schemas": len(schemas), "in flight": IN_FLIGHT, "K": K, "max_tokens": MAX_TOKENS},
    )
    samplings = {name: values for name, values in SAMPLINGS.items() if (options.sampling or "") in name}
    comparison = Comparison(report, schemas, tokenizer, samplings)
    with asyncio.Runner() as runner:
        for index, proposer in enumerate(parse_proposers(options.proposers)):
            with LocalStack(load_config(overrides=proposer.overrides)) as stack:
                comparison.run(proposer, stack.address, runner)
                if index == 0:
                    measure_masks(report, stack.address, runner, samples=2 if options.quick else 5)
            if options.json:
                report.write(options.json)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
