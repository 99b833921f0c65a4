"""Where does the time of a round go, with the head in the draft service?

Every round is traced: what the head computes, what the target takes (waiting for its step included), and the rest, in
which messages travel between the processes. Beside it stands a token of plain decoding, in the same services. Chains,
trees and chains drafted ahead take turns, each with an orchestrator of its own. With `--delay-ms` the messages of the
draft service take so much longer, each way.
"""

import asyncio
import contextlib
import dataclasses
import statistics
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

import shared.checkout  # noqa: F401  # finds tests.support
from shared.asking import Answer, ask, chat_request, connected, orchestrator
from shared.report import Report, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from tests.support.conditions import Conditions
from tests.support.otlp_collector import OtlpCollector, ReceivedSpan
from tests.support.proxy_process import ProxyProcess

MAX_TOKENS = 96
SETTINGS = (
    "draft.proposer=eagle3",
    "draft.head=smollm2-135m-instruct-eagle3",
    "target.drafter.proposer=none",
    "target.drafter.lookup=none",
    "telemetry.max_round_spans=1000000",
)
WAYS = {
    "on request": ("orchestrator.speculation.draft_ahead=off", "orchestrator.speculation.tree_nodes=0"),
    "trees": ("orchestrator.speculation.draft_ahead=off", "orchestrator.speculation.tree_nodes=auto"),
    "ahead": ("orchestrator.speculation.draft_ahead=on", "orchestrator.speculation.tree_nodes=0"),
}
EXPORT_S = 6.0
"""Until every batch of spans has left."""


@dataclass(slots=True)
class Way:
    """An orchestrator of its own over the services, and what came of it."""

    stub: pb_grpc.InferenceStub
    collector: OtlpCollector
    plain: list[Answer] = field(default_factory=list)
    drafted: list[Answer] = field(default_factory=list)

    async def ask(self, prompt: str, num_draft_tokens: int) -> None:
        for mode, answers in ((pb.SPECULATION_MODE_OFF, self.plain), (pb.SPECULATION_MODE_ON, self.drafted)):
            options = pb.SpeculationOptions(mode=mode, num_speculative_tokens=num_draft_tokens, proposer="draft")
            request = chat_request(prompt, max_tokens=MAX_TOKENS, temperature=0, speculation=options)
            answers.append(await ask(self.stub, request))


def token_ms(answers: Iterable[Answer]) -> float:
    """Milliseconds of a token after the first."""
    times = [(each.arrivals[-1].time_s - each.arrivals[0].time_s, len(each.token_ids) - 1) for each in answers]
    return 1e3 * sum(seconds for seconds, _ in times) / sum(tokens for _, tokens in times)


def mean_ms(spans: Sequence[ReceivedSpan]) -> float:
    return statistics.fmean(span.duration_ns for span in spans) / 1e6


def mean(spans: Sequence[ReceivedSpan], attribute: str) -> float:
    return statistics.fmean(int(str(span.attributes[f"pilotfish.{attribute}"])) for span in spans)


@contextlib.asynccontextmanager
async def services(delay_ms: float) -> AsyncIterator[dict[str, Way]]:
    """One target and one draft service, whose messages take so much longer, for all ways."""
    stack = LocalStack(load_config(None, SETTINGS))
    await asyncio.to_thread(stack.__enter__)
    try:
        async with contextlib.AsyncExitStack() as resources:
            addresses = stack.config.orchestrator.draft_addresses
            if delay_ms:
                proxy = resources.enter_context(ProxyProcess(addresses[0], Conditions(delay_ms=delay_ms)))
                addresses = (proxy.address,)
            ways = {}
            for name, settings in WAYS.items():
                collector = await resources.enter_async_context(OtlpCollector())
                config = load_config(None, [*SETTINGS, *settings, f"telemetry.otlp_endpoint={collector.endpoint}"])
                speculation = config.orchestrator.speculation
                section = dataclasses.replace(
                    stack.config.orchestrator, draft_addresses=addresses, speculation=speculation
                )
                own = dataclasses.replace(stack.config, orchestrator=section, telemetry=config.telemetry)
                process = resources.enter_context(orchestrator(own))
                ways[name] = Way(await resources.enter_async_context(connected(process.address)), collector)
            yield ways
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)


async def measure(report: Report, delay_ms: float, prompts: Sequence[str], num_draft_tokens: int) -> None:
    async with services(delay_ms) as ways:
        for turn, prompt in enumerate(prompts):
            order = list(ways.values())
            for way in order[turn % len(order) :] + order[: turn % len(order)]:
                await way.ask(prompt, num_draft_tokens)
        await asyncio.sleep(EXPORT_S)
        for name, way in ways.items():
            rounds = way.collector.named("round")
            report.row(
                drafts=name,
                delay_ms=delay_ms,
                rounds=len(rounds),
                tokens=round(mean(rounds, "num_tokens"), 2),
                rows=round(1 + mean(rounds, "num_draft_tokens"), 2),
                round_ms=round(mean_ms(rounds), 2),
                head_ms=round(mean_ms(way.collector.named("propose")), 2),
                target_ms=round(mean_ms(way.collector.named("verify")), 2),
                messages_ms=round(mean_ms(way.collector.named("network")), 2),
                plain_token_ms=round(token_ms(way.plain), 2),
                drafted_token_ms=round(token_ms(way.drafted), 2),
                speed_up=round(token_ms(way.plain) / token_ms(way.drafted), 2),
            )


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("-k", type=int, default=4, help="draft tokens in a row (default 4)")
    options_parser.add_argument("--prompts", type=int, default=8, help="prompts, by category in turn (default 8)")
    options_parser.add_argument("--delay-ms", type=float, nargs="+", default=[0.0], help="each way (default 0)")
    options = options_parser.parse_args(arguments)
    prompts = [each.text for each in load_prompts(options.dataset)][: 2 if options.quick else options.prompts]
    report = Report(
        "Where does the time of a round go, with the head in the draft service?",
        {"model": "smollm2-135m-instruct", "K": options.k, "prompts": len(prompts), "sampling": "greedy"},
    )
    for delay_ms in options.delay_ms:
        asyncio.run(measure(report, delay_ms, prompts, options.k))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
