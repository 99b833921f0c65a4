"""Is the text with speculation the text without it, through the running services, and what does that cost?

Every prompt is answered plainly and speculatively, greedily and with coupled sampling under a seed, alone, with
eight requests in flight, and with a KV cache so small that sequences are preempted. Rows without `deterministic`,
and float32, run on torch's own kernels: there the count of differing texts is a finding, and the gap between
the two likeliest tokens at the first difference says how near the tie was. `--schemas` asks for documents of random
JSON schemas instead, with the drafts of proposers that know nothing of grammars and of one that does, and counts the
valid ones; those that max_tokens cut off are counted apart: they are no fault of the grammar's.
"""

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support
import torch
from jsonschema import Draft202012Validator
from shared.asking import Answer, ask_all, chat_request
from shared.report import Report, dataset_name, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.proposers import parse_proposers
from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.conversion import grammar_to_proto
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import FinishReason, Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema
from tests.support.peer import RecordingPeer

NUM_PROMPTS, QUICK_PROMPTS = 60, 13
MAX_TOKENS = 64
NUM_SCHEMAS, QUICK_SCHEMAS = 200, 16
MAX_DOCUMENT_TOKENS = 512
SCHEMA_PROPOSERS = ("ngram-remote", "eagle3-suffix-tree")
"""One that knows nothing of grammars and drafts chains; one in the target, which masks its own trees."""
K = 5
MAX_CONTEXT_BYTES = 6000
"""Longer prompts would only measure prefill; cut so that every setting can hold them."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One configuration of the target."""

    name: str
    overrides: tuple[str, ...]
    concurrencies: tuple[int, ...]
    is_promised: bool
    max_prompts: int = NUM_PROMPTS
    """The slow settings get fewer."""
    must_preempt: bool = False
    """The setting is there for its preemptions: without any it would show nothing."""
    must_reuse: bool = False
    """The same of prefixes from the cache."""
    proposer: str = ""
    """As requests name it; empty: the configuration's."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """One prompt, and the JSON schema that its answer must follow, if any."""

    text: str
    schema: dict[str, Any] | None = None

    def is_valid(self, answer: Answer) -> bool:
        """Whether it is a document of the schema; without one everything is."""
        try:
            return self.schema is None or Draft202012Validator(self.schema).is_valid(json.loads(answer.text))
        except ValueError:
            return False


TIGHT_CACHE_TOKENS = 1792
SLOW_PROMPTS = 12
SETTINGS = (
    Setting("bf16, deterministic", (), (1, 8), True),
    Setting("bf16, deterministic, draft service", ("draft.proposer=ngram",), (1, 8), True),
    Setting(
        "bf16, deterministic, preempting",
        (f"target.engine.kv_cache_tokens={TIGHT_CACHE_TOKENS}", "target.engine.prefix_caching=false"),
        (8,),
        True,
        must_preempt=True,
    ),
    Setting(
        "int8, prefix reuse",
        ("target.engine.quantization=int8", "target.engine.prefix_caching=true"),
        (8,),
        True,
        must_reuse=True,
    ),
    Setting("bf16, not deterministic", ("target.engine.deterministic=false",), (1, 8), False, max_prompts=SLOW_PROMPTS),
    Setting(
        "bf16, torch kernels, deterministic", ("target.engine.compile=false",), (1, 8), True, max_prompts=SLOW_PROMPTS
    ),
    Setting(
        "bf16, torch kernels, not deterministic",
        ("target.engine.compile=false", "target.engine.deterministic=false"),
        (1, 8),
        False,
        max_prompts=SLOW_PROMPTS,
    ),
    Setting(
        "float32, torch kernels",
        ("target.engine.dtype=float32", "target.engine.deterministic=false"),
        (1, 8),
        False,
        max_prompts=SLOW_PROMPTS,
    ),
)
ON_GPU = Setting("bf16, GPU", ("target.engine.device=cuda", "target.engine.kv_cache_tokens=0"), (1, 8), False)
"""Where there is one."""
SAMPLINGS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "coupled, temperature 0.8": {"temperature": 0.8, "seed": 20260},
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first position at which two texts differ."""

    position: int
    gap: float
    """Log-probability gap of the two likeliest tokens there (greedy), in nats."""


def first_difference(plain: Answer, speculative: Answer) -> Difference | None:
    """None when the texts are equal."""
    if plain.token_ids == speculative.token_ids:
        return None
    pairs = zip(plain.token_ids, speculative.token_ids, strict=False)
    position = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
    if position is None:
        return Difference(min(len(plain.token_ids), len(speculative.token_ids)), float("nan"))
    top = plain.logprobs[position].top_logprobs
    return Difference(position, top[0] - top[1])


def requests_of(
    asked: Sequence[Asked], mode: int, sampling: dict[str, float], proposer: str = ""
) -> list[pb.GenerateRequest]:
    options = pb.SpeculationOptions(mode=mode, num_speculative_tokens=K, proposer=proposer)
    return [
        chat_request(
            item.text,
            max_tokens=MAX_DOCUMENT_TOKENS if item.schema else MAX_TOKENS,
            logprobs=2,
            speculation=options,
            grammar=grammar_to_proto(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(item.schema)))
            if item.schema
            else None,
            **sampling,
        )
        for item in asked
    ]


def drafter_settings(names: Sequence[str]) -> list[Setting]:
    """One for each drafter, alone and with eight requests in flight."""
    return [
        Setting(f"bf16, {each.name}", each.overrides, (1, 8), True, proposer=each.request_name)
        for each in parse_proposers(names)
    ]


def schema_settings() -> list[Setting]:
    """One for each of SCHEMA_PROPOSERS."""
    return [
        Setting(f"JSON schemas, {each.name}", each.overrides, (8,), True, NUM_SCHEMAS, proposer=each.request_name)
        for each in parse_proposers(SCHEMA_PROPOSERS)
    ]


async def num_preemptions(stack: LocalStack) -> int:
    """The target's preemptions so far, as its first load report has them."""
    security = LinkSecurity(stack.config.security.internal)
    async with RecordingPeer(stack.config.orchestrator.target_addresses[0], "target", security=security) as peer:
        return (await peer.load()).num_preemptions


def compare(report: Report, setting: Setting, asked: Sequence[Asked]) -> None:
    """Run a setting and add its rows and checks."""
    # One event loop for all: gRPC's poller outlives a loop and would complain into the next one.
    with LocalStack(load_config(overrides=setting.overrides)) as stack, asyncio.Runner() as runner:
        runner.run(ask_all(stack.address, requests_of(asked[:2], pb.SPECULATION_MODE_ON, {}), 1))  # warm up
        for name, sampling in SAMPLINGS.items():
            reference: list[Answer] | None = None
            for concurrency in setting.concurrencies:
                modes = {"off": pb.SPECULATION_MODE_OFF, "on": pb.SPECULATION_MODE_ON}
                for mode, value in modes.items():
                    before = runner.run(num_preemptions(stack))
                    start = time.perf_counter()
                    requests = requests_of(asked, value, sampling, setting.proposer if mode == "on" else "")
                    answers = runner.run(ask_all(stack.address, requests, concurrency))
                    wall_s = time.perf_counter() - start
                    reference = reference or answers
                    found = [first_difference(a, b) for a, b in zip(reference, answers, strict=True)]
                    differences = [difference for difference in found if difference is not None]
                    num_tokens = sum(len(answer.token_ids) for answer in answers)
                    drafted = sum(answer.summary.speculation.num_draft_tokens for answer in answers)
                    accepted = sum(answer.summary.speculation.num_accepted_tokens for answer in answers)
                    num_cut = sum(answer.summary.finish_reason == FinishReason.LENGTH for answer in answers)
                    num_valid = sum(item.is_valid(answer) for item, answer in zip(asked, answers, strict=True))
                    label = f"{setting.name}; {name}; {concurrency} in flight; speculation {mode}"
                    preempted = runner.run(num_preemptions(stack)) - before
                    report.row(
                        setting=setting.name,
                        sampling=name,
                        in_flight=concurrency,
                        speculation=mode,
                        texts=len(answers),
                        differ=len(differences),
                        valid=num_valid if asked[0].schema else "",
                        cut_off=num_cut if asked[0].schema else "",
                        largest_gap=max((difference.gap for difference in differences), default=0.0),
                        tokens_per_s=num_tokens / wall_s,
                        preemptions=preempted,
                        accepted_of_drafted=f"{accepted}/{drafted}",
                    )
                    print(f"{label}: {len(differences)} of {len(answers)} differ, {wall_s:.0f} s", file=sys.stderr)
                    if setting.is_promised and answers is not reference:
                        report.check(label, len(differences), 0, "texts differ", "equal to")
                    if asked[0].schema:
                        report.check(f"{label}: valid", num_valid, len(answers), "answers", "equal to")
                    if setting.must_preempt:
                        report.check(f"{label}: preempted", preempted, 1, "preemptions", "at least")
                    if setting.must_reuse and mode == "on":
                        num_cached = sum(answer.summary.usage.cached_prompt_tokens for answer in answers)
                        report.check(f"{label}: prefixes were reused", num_cached, 1, "tokens", "at least")
                    if mode == "on":
                        report.check(f"{label}: drafts were verified", drafted, 1, "drafts", "at least")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments_parser = parser(__doc__, dataset=True)
    arguments_parser.add_argument("--setting", action="append", help="only settings named like this; repeatable")
    arguments_parser.add_argument(
        "--drafters",
        nargs="+",
        metavar="NAME",
        help="these drafters instead of the settings, as `pilotfish bench` names them",
    )
    arguments_parser.add_argument("--schemas", action="store_true", help="documents of random JSON schemas")
    options = arguments_parser.parse_args(arguments)
    if options.schemas:
        schemas = [random_object_schema(seed) for seed in range(QUICK_SCHEMAS if options.quick else NUM_SCHEMAS)]
        ask = "Answer with a JSON document that follows this schema: "
        asked, settings = [Asked(f"{ask}{json.dumps(schema)}", schema) for schema in schemas], schema_settings()
    else:
        prompts = load_prompts(options.dataset)[: QUICK_PROMPTS if options.quick else NUM_PROMPTS]
        asked = [Asked(prompt.text[:MAX_CONTEXT_BYTES]) for prompt in prompts]
        settings = list(SETTINGS[:4] if options.quick else SETTINGS)
        settings += [ON_GPU] * torch.cuda.is_available()
        if options.drafters:
            settings = drafter_settings(options.drafters)
    settings = [each for each in settings if not options.setting or any(part in each.name for part in options.setting)]
    drafters = " ".join(options.drafters or ["the default: suffix before the EAGLE-3 head in the target"])
    report = Report(
        "Is the text with speculation the text without it?",
        {
            "prompts": f"{len(asked)} ({dataset_name(options)})",
            "new tokens": MAX_DOCUMENT_TOKENS if options.schemas else MAX_TOKENS,
            "drafters": f"{drafters}; trees in the target; K = {K}",
            "compared with": "plain, one request at a time, same setting and sampling",
        },
    )
    for setting in settings:
        compare(report, setting, asked[: setting.max_prompts])
        if options.json:
            report.write(options.json)  # a long run that is cut short keeps what it found
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
