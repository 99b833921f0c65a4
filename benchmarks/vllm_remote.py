"""What is Pilotfish's draft pool worth to a stock vLLM: does it say the same, how fast, and what if the pool fails?

vLLM on the processor (benchmarks/peers/setup.sh vllm) without speculation, with its own n-gram lookup, and with
Pilotfish's draft service through pilotfish.integrations.vllm.RemoteProposer. All answer the same prompts in turns,
greedily, one request at a time and eight. Then the draft service is stopped, started again, frozen and slowed in the
middle of requests, while vLLM without it answers the same ones beside it. (peers.py has Pilotfish's own target beside
vLLM.)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import shared.checkout  # noqa: F401  # finds tests.support
from peers import VLLM, Conditions, peer_process
from shared.peer_process import Batch, PeerProcess
from shared.real_models import target_folder
from shared.report import Report, dataset_name, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.suite import STACK_DEFAULTS
from pilotfish.chat import ChatMessage
from pilotfish.config import load_config
from pilotfish.errors import PilotfishError
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.conditions import Conditions as Link
from tests.support.proxy_process import ProxyProcess
from tests.support.service_process import ServiceProcess

CONTEXT = 2048
CONCURRENCY = (1, 8)
K, NGRAM_K = 8, 5
"""Draft tokens with the draft service, and of vLLM's own n-gram speculation."""
DRAFTER = ("draft.proposer=suffix", "draft.suffix_shared_tokens=0", "draft.lookup_min_probability=0.03")
"""No shared outputs: all arms answer the same prompts, and one would draft the other's. A verification of vLLM costs
hardly more than a step, so that unlikely drafts pay as well."""


@dataclass
class Arm:
    """One contestant's answers, by requests in flight."""

    vllm: PeerProcess
    max_tokens: int
    answers: dict[int, list[tuple[int, ...]]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    counters: dict[str, float] = field(default_factory=dict)

    def ask(self, prompts: Sequence[Sequence[int]], concurrency: int) -> Batch:
        """Answers that do not count."""
        return self.vllm.ask(prompts, max_tokens=self.max_tokens, concurrency=concurrency)

    def add(self, prompts: Sequence[Sequence[int]], concurrency: int) -> None:
        batch = self.ask(prompts, concurrency)
        self.answers[concurrency] += batch.token_ids
        self.seconds[concurrency] += batch.elapsed_s
        self.counters = batch.counters

    def tokens_per_s(self, concurrency: int) -> float:
        """Tokens a second over whole answers, prefill included."""
        return sum(map(len, self.answers[concurrency])) / self.seconds[concurrency]

    def num_equal(self, other: Arm, concurrency: int) -> int:
        """Answers that are the other's, token for token."""
        pairs = zip(self.answers[concurrency], other.answers[concurrency], strict=True)
        return sum(own == theirs for own, theirs in pairs)


def take_turns(arms: Sequence[Arm], prompts: Sequence[Sequence[int]], concurrency: int) -> None:
    """Ask each arm in turn, `concurrency` prompts at a time: slow spells of the machine hit all alike."""
    for start in range(0, len(prompts), concurrency):
        chunk = prompts[start : start + concurrency]
        turn = start // concurrency % len(arms)
        for arm in (*arms[turn:], *arms[:turn]):
            arm.add(chunk, concurrency)
        print(
            f"{min(start + concurrency, len(prompts))}/{len(prompts)} prompts, {concurrency} at once", file=sys.stderr
        )


def add_speeds(report: Report, arms: dict[str, Arm], num_prompts: int) -> None:
    """The table, and what is asked of it."""
    plain, ngram, remote = arms["plain"], arms["lookup"], arms["remote"]
    for concurrency in CONCURRENCY:
        for mode, arm in arms.items():
            report.row(
                **{
                    "in flight": concurrency,
                    "arm": f"vllm {mode}",
                    "tokens/s": arm.tokens_per_s(concurrency),
                    "over vllm plain": arm.tokens_per_s(concurrency) / plain.tokens_per_s(concurrency),
                    "answers equal to vllm plain": f"{arm.num_equal(plain, concurrency)}/{num_prompts}",
                }
            )
    for concurrency in CONCURRENCY:
        report.check(
            f"answers equal to vllm plain, {concurrency} in flight: remote, at least as vllm's own n-gram",
            remote.num_equal(plain, concurrency),
            ngram.num_equal(plain, concurrency),
            "",
            "at least",
        )
    gain = remote.tokens_per_s(1) / plain.tokens_per_s(1)
    report.check("vllm remote over vllm plain, 1 in flight", gain, 1.3, kind="at least")
    for name, value in remote.counters.items():
        report.row(**{"arm": f"vllm remote {name}", "tokens/s": value})


SLOW = Link(delay_ms=100)
"""Each way: no answer comes within a step."""
SLUGGISH = Link(delay_ms=5)
"""Each way: answers come before the deadline, and cost half a step."""
_STRIKE_AFTER_S = 0.3
"""A fault strikes in the middle of an answer."""


@dataclass(frozen=True)
class Phase:
    """Some requests under one fault."""

    name: str
    strike: Callable[[], object] | None
    """What happens in the middle of the first request; None: nothing."""
    is_gone: bool
    """Whether drafts are missing in it."""


@dataclass(frozen=True)
class Outcome:
    """One phase."""

    phase: Phase
    num_requests: int
    num_failed: int
    plain_tokens_per_s: float
    remote_tokens_per_s: float
    num_missed_deadlines: float

    @property
    def ratio(self) -> float:
        return self.remote_tokens_per_s / self.plain_tokens_per_s


def phases(draft: ServiceProcess, proxy: ProxyProcess) -> list[Phase]:
    """The phases in their order; the draft service is well again at the end."""
    return [
        Phase("sound", None, False),
        Phase("stopped", draft.kill, True),
        Phase("restarted", lambda: (draft.start(), draft.wait_listening()), False),
        Phase("frozen", draft.freeze, True),
        Phase("thawed", draft.thaw, False),
        Phase("slow (100 ms each way)", lambda: proxy.apply(SLOW), True),
        Phase("sluggish (5 ms each way)", lambda: proxy.apply(SLUGGISH), False),
        Phase("sound again", lambda: proxy.apply(Link()), False),
    ]


def measure(
    phase: Phase, plain: PeerProcess, remote: PeerProcess, prompts: Sequence[Sequence[int]], max_tokens: int
) -> Outcome:
    """The prompts one by one, each by both in turns."""
    seconds = {plain: 0.0, remote: 0.0}
    tokens = {plain: 0, remote: 0}
    num_failed = 0
    before = after = answer(remote, prompts[0], 1, None).counters
    for index, prompt in enumerate(prompts):
        for vllm in (plain, remote) if index % 2 else (remote, plain):
            strike = phase.strike if vllm is remote and index == 0 else None
            try:
                batch = answer(vllm, prompt, max_tokens, strike)
            except PilotfishError:
                num_failed += 1
                continue
            num_failed += not batch.num_tokens
            seconds[vllm] += batch.elapsed_s
            tokens[vllm] += batch.num_tokens
            if vllm is remote:
                after = batch.counters
    speeds = {vllm: tokens[vllm] / seconds[vllm] for vllm in (plain, remote)}
    missed = after["num_missed_deadlines"] - before["num_missed_deadlines"]
    return Outcome(phase, len(prompts), num_failed, speeds[plain], speeds[remote], missed)


def answer(vllm: PeerProcess, prompt: Sequence[int], max_tokens: int, strike: Callable[[], object] | None) -> Batch:
    """One answer, and in the middle of it what `strike` does. Raises PilotfishError."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        asked = executor.submit(vllm.ask, [prompt], max_tokens=max_tokens)
        if strike is not None:
            time.sleep(_STRIKE_AFTER_S)
            strike()  # on this thread: a process that is started ends with the thread that started it
        return asked.result()


def add_outage(report: Report, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        report.row(
            **{
                "in flight": 1,
                "arm": f"draft service {outcome.phase.name}: {outcome.num_requests} requests",
                "tokens/s": outcome.remote_tokens_per_s,
                "over vllm plain": outcome.ratio,
                "missed deadlines": outcome.num_missed_deadlines,
            }
        )
    report.check("failed requests", sum(outcome.num_failed for outcome in outcomes), 0, "", "equal to")
    for outcome in outcomes:
        if outcome.phase.is_gone:
            report.check(f"over vllm plain, draft service {outcome.phase.name}", outcome.ratio, 0.95, kind="at least")


def run(options: argparse.Namespace, report: Report) -> None:
    config = load_config(overrides=[*STACK_DEFAULTS, *DRAFTER])
    model = target_folder(config)
    with contextlib.ExitStack() as stack:
        settings = [part for each in DRAFTER for part in ("--set", each)]
        draft = stack.enter_context(ServiceProcess("draft_service", settings))
        proxy = stack.enter_context(ProxyProcess(draft.address))
        texts = load_prompts(options.dataset, per_category=options.prompts)
        tokenizer = Tokenizer.load(model)
        prompts = [tokenizer.apply_chat_template((ChatMessage("user", each.text),)) for each in texts]
        prompts = [each for each in prompts if len(each) + options.max_tokens + 16 <= CONTEXT]

        def start(mode: str) -> PeerProcess:
            print(f"starting vllm {mode}", file=sys.stderr)
            more = ["--max-num-seqs", str(max(CONCURRENCY))]
            more += ["--num-draft-tokens", str(NGRAM_K if mode == "lookup" else K)]
            more += ["--pilotfish", json.dumps({"draft_addresses": [proxy.address]})]
            conditions = Conditions(model, len(os.sched_getaffinity(0)), CONTEXT)
            return stack.enter_context(peer_process(VLLM, mode, options.peers, conditions, more))

        plain, remote = start("plain"), start("remote")
        report.conditions |= {"vllm": plain.facts["version"], "prompts": len(prompts)}
        if not options.only_faults:
            started = {"plain": plain, "lookup": start("lookup"), "remote": remote}
            arms = {mode: Arm(vllm, options.max_tokens) for mode, vllm in started.items()}
            for concurrency in CONCURRENCY:
                # Whatever is compiled or measured at the first request of a kind is no answer.
                for arm in arms.values():
                    arm.ask(prompts[:concurrency], concurrency)
                take_turns(list(arms.values()), prompts, concurrency)
            add_speeds(report, arms, len(prompts))
        if options.requests:
            asked = [prompts[index % len(prompts)] for index in range(options.requests)]
            parts = phases(draft, proxy)
            size = max(1, len(asked) // len(parts))
            outcomes = []
            for index, phase in enumerate(parts):
                outcomes.append(
                    measure(phase, plain, remote, asked[index * size : (index + 1) * size], options.max_tokens)
                )
                print(f"draft service {phase.name}: {outcomes[-1].ratio:.2f}", file=sys.stderr)
            add_outage(report, outcomes)


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--peers", type=Path, default=Path("/tmp/peers"), help="where setup.sh installed vLLM")
    options_parser.add_argument("--prompts", type=int, help="of each category (default 2, quick 1)")
    options_parser.add_argument("--max-tokens", type=int, default=128)
    options_parser.add_argument("--requests", type=int, help="under faults (default 200, quick 16; 0: none)")
    options_parser.add_argument("--only-faults", action="store_true")
    options = options_parser.parse_args(arguments)
    options.prompts = options.prompts or (1 if options.quick else 2)
    options.max_tokens = 32 if options.quick else options.max_tokens
    options.requests = (16 if options.quick else 200) if options.requests is None else options.requests
    report = Report(
        "What is Pilotfish's draft pool worth to a stock vLLM?",
        {
            "sampling": "greedy",
            "output tokens at most": options.max_tokens,
            "drafter": " ".join(DRAFTER),
            "draft tokens": f"{K}, vLLM's n-gram {NGRAM_K}",
            "prompts from": dataset_name(options),
            "cores shared by all": len(os.sched_getaffinity(0)),
        },
    )
    run(options, report)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
