"""Where does the time of a round go, with the head in the draft service?

Every round is traced: what the head computes, what the target takes (waiting for its step included), and the rest, in
which messages travel between the processes. Beside it stands a token of plain decoding, in the same services. With
`--delay-ms` the messages of the draft service take so much longer, each way.
"""

import asyncio
import contextlib
import dataclasses
import statistics
import sys
from collections.abc import AsyncIterator, Iterable, Sequence

import shared.checkout  # noqa: F401  # finds tests.support
from shared.asking import Answer, ask, chat_request, connected, orchestrator
from shared.report import Report, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.config import Config, load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from tests.support.conditions import Conditions
from tests.support.otlp_collector import OtlpCollector, ReceivedSpan
from tests.support.proxy_process import ProxyProcess

NUM_DRAFT_TOKENS, MAX_TOKENS = 4, 96
SETTINGS = (
    "draft.proposer=eagle3",
    "draft.head=smollm2-135m-instruct-eagle3",
    "target.drafter.proposer=none",
    "target.drafter.lookup=none",
    "telemetry.max_round_spans=1000000",
)
WAYS = {"on request": "orchestrator.speculation.draft_ahead=off", "ahead": "orchestrator.speculation.draft_ahead=on"}
EXPORT_S = 6.0
"""Until every batch of spans has left."""


def request(prompt: str, mode: int) -> pb.GenerateRequest:
    options = pb.SpeculationOptions(mode=mode, num_speculative_tokens=NUM_DRAFT_TOKENS, proposer="draft")
    return chat_request(prompt, max_tokens=MAX_TOKENS, temperature=0, speculation=options)


def token_ms(answers: Iterable[Answer]) -> float:
    """Milliseconds of a token after the first."""
    times = [(each.arrivals[-1].time_s - each.arrivals[0].time_s, len(each.token_ids) - 1) for each in answers]
    return 1e3 * sum(seconds for seconds, _ in times) / sum(tokens for _, tokens in times)


def mean_ms(spans: Sequence[ReceivedSpan]) -> float:
    return statistics.fmean(span.duration_ns for span in spans) / 1e6


@contextlib.asynccontextmanager
async def services(config: Config, delay_ms: float) -> AsyncIterator[pb_grpc.InferenceStub]:
    """The stack's own orchestrator, or one here whose messages to the draft service take longer."""
    stack = LocalStack(config)
    await asyncio.to_thread(stack.__enter__)
    try:
        with contextlib.ExitStack() as resources:
            address = stack.address
            if delay_ms:
                (draft_address,) = stack.config.orchestrator.draft_addresses
                proxy = resources.enter_context(ProxyProcess(draft_address, Conditions(delay_ms=delay_ms)))
                section = dataclasses.replace(stack.config.orchestrator, draft_addresses=(proxy.address,))
                further = dataclasses.replace(stack.config, orchestrator=section)
                address = resources.enter_context(orchestrator(further)).address
            async with connected(address) as stub:
                yield stub
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)


async def measure(report: Report, way: str, delay_ms: float, prompts: Sequence[str]) -> None:
    async with OtlpCollector() as collector:
        config = load_config(None, [*SETTINGS, WAYS[way], f"telemetry.otlp_endpoint={collector.endpoint}"])
        async with services(config, delay_ms) as stub:
            plain, drafted = [], []
            for prompt in prompts:  # in turns
                plain.append(await ask(stub, request(prompt, pb.SPECULATION_MODE_OFF)))
                drafted.append(await ask(stub, request(prompt, pb.SPECULATION_MODE_ON)))
            await asyncio.sleep(EXPORT_S)
        rounds = collector.named("round")
        report.row(
            drafts=way,
            delay_ms=delay_ms,
            rounds=len(rounds),
            tokens=round(statistics.fmean(int(str(span.attributes["pilotfish.num_tokens"])) for span in rounds), 2),
            round_ms=round(mean_ms(rounds), 2),
            head_ms=round(mean_ms(collector.named("propose")), 2),
            target_ms=round(mean_ms(collector.named("verify")), 2),
            messages_ms=round(mean_ms(collector.named("network")), 2),
            plain_token_ms=round(token_ms(plain), 2),
            speed_up=round(token_ms(plain) / token_ms(drafted), 2),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--delay-ms", type=float, nargs="+", default=[0.0], help="each way (default 0)")
    options = options_parser.parse_args(arguments)
    prompts = [each.text for each in load_prompts(options.dataset, per_category=1)][: 2 if options.quick else 8]
    report = Report(
        "Where does the time of a round go, with the head in the draft service?",
        {"model": "smollm2-135m-instruct", "K": NUM_DRAFT_TOKENS, "prompts": len(prompts), "sampling": "greedy"},
    )
    for delay_ms in options.delay_ms:
        for way in WAYS:
            asyncio.run(measure(report, way, delay_ms, prompts))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
