"""Where does the time of a round go, with the head in the draft service?

Every round is traced: what the head computes, what the target takes (waiting for its step included), and the rest, in
which messages travel between the processes. Beside it stands a token of plain decoding, in the same services.
"""

import asyncio
import statistics
import sys
from collections.abc import Iterable, Sequence

import shared.checkout  # noqa: F401  # finds tests.support
from shared.asking import Answer, ask, chat_request, connected
from shared.report import Report, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.otlp_collector import OtlpCollector, ReceivedSpan

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


async def measure(report: Report, way: str, prompts: Sequence[str]) -> None:
    async with OtlpCollector() as collector:
        config = load_config(None, [*SETTINGS, WAYS[way], f"telemetry.otlp_endpoint={collector.endpoint}"])
        stack = LocalStack(config)
        await asyncio.to_thread(stack.__enter__)
        try:
            async with connected(stack.address) as stub:
                plain = [await ask(stub, request(prompt, pb.SPECULATION_MODE_OFF)) for prompt in prompts]
                drafted = [await ask(stub, request(prompt, pb.SPECULATION_MODE_ON)) for prompt in prompts]
            await asyncio.sleep(EXPORT_S)
        finally:
            await asyncio.to_thread(stack.__exit__, None, None, None)
        rounds = collector.named("round")
        report.row(
            drafts=way,
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
    options = parser(__doc__, dataset=True).parse_args(arguments)
    prompts = [each.text for each in load_prompts(options.dataset, per_category=1)][: 2 if options.quick else 8]
    report = Report(
        "Where does the time of a round go, with the head in the draft service?",
        {"model": "smollm2-135m-instruct", "K": NUM_DRAFT_TOKENS, "prompts": len(prompts), "sampling": "greedy"},
    )
    for way in WAYS:
        asyncio.run(measure(report, way, prompts))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
