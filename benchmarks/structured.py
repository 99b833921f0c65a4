"""What is it worth to draft what a grammar forces? Sixty schemas of the kinds that people use.

Every request is answered in each way in turn, with the same prompts in the caches: plainly, by the head in the target,
by the grammar alone, by both, and as the controller decides. Two stacks run beside each other, of which one drafts
nothing of grammars; speeds are those after the prompt, and ratios are of the same turns.
"""

import asyncio
import random
import secrets
import statistics
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from schemas import FORM_REQUESTS, KINDS, FormRequest
from schemas.answers import FormAnswer, stream
from schemas.mask_cost import grammar_costs
from shared.real_models import target_folder
from shared.report import Report, parser

from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack

MODEL, SEED, MAX_TOKENS = "smollm2-135m-instruct", 7, 200
SETTINGS = ("draft.num_replicas=0", "draft.suffix_shared_tokens=0")
"""Proposer `draft` then means nobody, and no answer is drafted from the same one in another way."""
WITHOUT = "target.drafter.grammar=false"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "off": ("with", {"mode": "off"}),
    "head": ("without", {"mode": "on"}),
    "grammar": ("with", {"mode": "on", "proposer": "draft"}),
    "head+grammar": ("with", {"mode": "on"}),
    "auto": ("with", {"mode": "auto"}),
}
"""Stack, and how a request speculates."""
TEMPERATURES, LOADS, TTFT_TOKENS = (0.0, 0.7), (1, 8), 12
Stacks = dict[str, httpx.AsyncClient]


@dataclass(slots=True)
class Sum:
    """What the answers of one way came to, of one kind of request at one temperature and load."""

    num_tokens: int = 0
    seconds: float = 0.0
    """Time after the one that plain decoding takes to the first token, at one request; at several, the time of them
    all."""
    num_drafted: int = 0
    num_accepted: int = 0
    """The grammar's draft tokens that were accepted."""
    num_differing: int = 0
    first_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def count(self, answer: FormAnswer, plain: FormAnswer) -> None:
        self.num_drafted += answer.report["num_grammar_draft_tokens"]
        self.num_accepted += answer.report["num_grammar_accepted_tokens"]
        self.num_differing += answer.token_ids != plain.token_ids
        self.first_s.append(answer.first_s)


Sums = dict[tuple[str, float, int, str], Sum]
"""Sums by kind, temperature, load and way."""


@asynccontextmanager
async def started() -> AsyncIterator[Stacks]:
    async with AsyncExitStack() as exits:
        stacks: Stacks = {}
        for name, overrides in (("with", SETTINGS), ("without", (*SETTINGS, WITHOUT))):
            stack = LocalStack(load_config(overrides=overrides))
            await asyncio.to_thread(stack.__enter__)
            exits.push_async_callback(asyncio.to_thread, stack.__exit__, None, None, None)
            client = httpx.AsyncClient(base_url=stack.http_url, timeout=600)
            stacks[name] = await exits.enter_async_context(client)
        yield stacks


async def ask(
    stacks: Stacks,
    way: str,
    request: FormRequest,
    temperature: float,
    *,
    salt: str = "",
    max_tokens: int = MAX_TOKENS,
) -> FormAnswer:
    name, speculation = WAYS[way]
    body = request.body(MODEL, max_tokens) | {
        "temperature": temperature,
        "seed": SEED,
        "speculation": speculation | {"return_tokens": True},
    }
    return await stream(stacks[name], body | ({"cache_salt": salt} if salt else {}))


async def measure_one(stacks: Stacks, requests: Sequence[FormRequest], temperature: float, sums: Sums) -> None:
    """Each request alone, in every way in turn."""
    for request in requests:
        answers = {way: await ask(stacks, way, request, temperature) for way in WAYS}
        plain = answers["off"]
        for way, answer in answers.items():
            total = sums[request.kind, temperature, 1, way]
            total.count(answer, plain)
            total.num_tokens += len(answer.token_ids) - 1
            total.seconds += answer.total_s - plain.first_s


async def measure_many(
    stacks: Stacks, requests: Sequence[FormRequest], temperature: float, load: int, sums: Sums
) -> None:
    """Ask `load` requests at a time, in every way in turn."""
    for first in range(0, len(requests), load):
        batch = requests[first : first + load]
        plain: Sequence[FormAnswer] = ()
        for way in WAYS:
            answers = await asyncio.gather(*(ask(stacks, way, request, temperature) for request in batch))
            plain = plain or answers
            total = sums["all", temperature, load, way]
            total.num_tokens += sum(len(answer.token_ids) for answer in answers)
            total.seconds += max(answer.total_s for answer in answers)
            for answer, of_plain in zip(answers, plain, strict=True):
                total.count(answer, of_plain)


async def times_to_first_token(
    stacks: Stacks, requests: Sequence[FormRequest], num_repeats: int
) -> dict[str, list[float]]:
    """Milliseconds with nothing in the caches, in pairs; the ways are asked in a new order each time."""
    ways, order = ("off", "head", "grammar", "head+grammar"), random.Random(SEED)
    firsts: dict[str, list[float]] = {way: [] for way in ways}
    for request in requests * num_repeats:
        for way in order.sample(ways, len(ways)):
            salt = secrets.token_hex(8)
            answer = await ask(stacks, way, request, 0.0, salt=salt, max_tokens=TTFT_TOKENS)
            firsts[way].append(1e3 * answer.first_s)
    return firsts


async def measure(options: Any) -> tuple[Sums, Sum, dict[str, list[float]], list[FormAnswer], list[FormRequest]]:
    per_kind = options.per_kind or (6 if options.quick else 15)
    requests = [each for kind in KINDS for each in [each for each in FORM_REQUESTS if each.kind == kind][:per_kind]]
    # At 8 requests all kinds are answered together.
    mixed = [requests[index] for offset in range(per_kind) for index in range(offset, len(requests), per_kind)]
    sums: Sums = defaultdict(Sum)
    async with started() as stacks:
        seen_first, plain = Sum(), []
        for request in requests:
            plain.append(await ask(stacks, "off", request, 0.0))
            seen_first.count(await ask(stacks, "grammar", request, 0.0), plain[-1])
            await ask(stacks, "grammar", request, 0.7)
            await ask(stacks, "head", request, 0.0)
        for turn in range(options.turns or 1):
            for temperature in TEMPERATURES:
                print(f"turn {turn + 1}, temperature {temperature}", file=sys.stderr)
                await measure_one(stacks, requests, temperature, sums)
                for load in LOADS[1:]:
                    await measure_many(stacks, mixed, temperature, load, sums)
        first = await times_to_first_token(stacks, mixed[:8], 4 if options.quick else 8)
    return sums, seen_first, first, plain, requests


def total_of(sums: Sums, way: str, load: int, *, kinds: Sequence[str] = (), temperatures: Sequence[float] = ()) -> Sum:
    """The sum over those kinds and temperatures; none named: all."""
    total = Sum()
    for (kind, temperature, at, name), each in sums.items():
        chosen = (not kinds or kind in kinds) and (not temperatures or temperature in temperatures)
        if chosen and at == load and name == way:
            for key in ("num_tokens", "seconds", "num_drafted", "num_accepted", "num_differing"):
                setattr(total, key, getattr(total, key) + getattr(each, key))
            total.first_s += each.first_s
    return total


def add_rows(report: Report, sums: Sums) -> None:
    for (kind, temperature, load, way), each in sums.items():
        plain = sums[kind, temperature, load, "off"]
        report.row(
            kind=kind,
            temperature=temperature,
            requests=load,
            way=way,
            tokens=each.num_tokens,
            tokens_per_s=round(each.rate, 1),
            over_off=round(each.rate / plain.rate, 2),
            grammar_share=round(each.num_accepted / max(1, each.num_tokens), 3),
            grammar_accepted=round(each.num_accepted / each.num_drafted, 3) if each.num_drafted else "",
            differing=each.num_differing,
            first_token_ms=round(1e3 * statistics.median(each.first_s), 1),
        )


def add_checks(report: Report, sums: Sums) -> None:
    for kind in KINDS:
        ways = [total_of(sums, way, 1, kinds=[kind]) for way in ("grammar", "head+grammar")]
        drafted, accepted = (sum(getattr(each, name) for each in ways) for name in ("num_drafted", "num_accepted"))
        report.check(f"grammar's drafts accepted, {kind}", accepted / max(1, drafted), 0.98, "", "at least")
    for temperature in TEMPERATURES:
        rates = {way: total_of(sums, way, 1, kinds=["tool calls"], temperatures=[temperature]).rate for way in WAYS}
        for way, asked in (("head+grammar", 3.0), ("grammar", 2.0)):
            name = f"{way} over off, tool calls, temperature {temperature:g}"
            report.check(name, rates[way] / rates["off"], asked, kind="at least")
        name = f"head+grammar over head, tool calls, temperature {temperature:g}"
        report.check(name, rates["head+grammar"] / rates["head"], 1.3, kind="at least")
        rates = {way: total_of(sums, way, 1, temperatures=[temperature]).rate for way in WAYS}
        name = f"head+grammar over head, all kinds, temperature {temperature:g}"
        report.check(name, rates["head+grammar"] / rates["head"], 1.3, kind="at least")
        many = {way: total_of(sums, way, LOADS[-1], temperatures=[temperature]).rate for way in WAYS}
        name = f"auto over off, {LOADS[-1]} requests, temperature {temperature:g}"
        report.check(name, many["auto"] / many["off"], 1.3, kind="at least")
    num_differing = sum(each.num_differing for each in sums.values())
    report.check("texts that differ", num_differing, 0, "texts", "equal to")


def main(arguments: Sequence[str] | None = None) -> int:
    structured_parser = parser(__doc__)
    structured_parser.add_argument("--per-kind", type=int, help="requests of each kind (default 15, quick 6)")
    structured_parser.add_argument("--turns", type=int, help="default 1")
    options = structured_parser.parse_args(arguments)
    sums, seen_first, first, plain, requests = asyncio.run(measure(options))
    report = Report(
        "What is it worth to draft what a grammar forces?",
        {"model": MODEL, "schemas": len(requests), "max_tokens": MAX_TOKENS, "sampling": "greedy and coupled at 0.7"},
    )
    report.columns = {
        "kind": "kind",
        "temperature": "T",
        "requests": "at once",
        "way": "way",
        "tokens_per_s": "tokens/s",
        "over_off": "x off",
        "grammar_share": "share",
        "grammar_accepted": "accepted",
        "differing": "differ",
    }
    add_rows(report, sums)
    add_checks(report, sums)
    report.conditions["accepted of schemas that were never seen"] = round(
        seen_first.num_accepted / max(1, seen_first.num_drafted), 3
    )
    report.conditions |= {f"first token, ms, {way}": round(statistics.median(each), 1) for way, each in first.items()}
    for way, without in (("grammar", "off"), ("head+grammar", "head")):
        ratios = [drafted / other for drafted, other in zip(first[way], first[without], strict=True)]
        report.check(f"time to first token, {way} over {without}", statistics.median(ratios), 1.05)
    folder = target_folder(load_config(overrides=SETTINGS))
    written = list(zip(requests, [answer.token_ids for answer in plain], strict=True))
    costs = grammar_costs(folder, MODEL, written, max_draft_tokens=32)
    report.conditions |= {f"CPU us a token, {name}": round(us, 1) for name, us in asdict(costs).items()}
    report.check("CPU of masks a token, drafted over plain", costs.masks_us / costs.plain_us, 1.05)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
