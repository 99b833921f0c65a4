"""What drafting ahead gains over synchronous drafting, on a fast and on a slow network (part d)."""

import asyncio
import contextlib
import dataclasses

import shared.checkout  # noqa: F401  # finds tests.support
from emulation.client import Client, Span, emulated_config, span_of
from emulation.grid import num_rounds_for
from shared.asking import connected, orchestrator
from shared.report import Report

from pilotfish.launch.local_stack import LocalStack
from tests.support.conditions import Conditions
from tests.support.proxy_process import ProxyProcess

RATE, NUM_DRAFT_TOKENS = 0.8, 5
DELAY_MS = 2.0
"""Each way, between orchestrator and draft service."""
NOISE, QUICK_NOISE = 0.015, 0.05
ANSWER_TOKENS = 512
ASKED = {0.0: 3.2, DELAY_MS: 2.9}
"""Speed-up over plain decoding, by the delay added each way."""
COLUMNS = {
    "drafting": "drafting",
    "added_delay_ms": "added delay ms",
    "speed_up": "speed-up",
    "round_ms": "round ms",
    "tokens_per_round": "tokens a round",
    "rounds": "rounds",
}


def run_ahead(report: Report, *, quick: bool) -> None:
    """A row per arm; the gain over synchronous drafting as checks."""
    report.columns = COLUMNS
    num_rounds = num_rounds_for(RATE, NUM_DRAFT_TOKENS, QUICK_NOISE if quick else NOISE)
    plain, spans = asyncio.run(_measure(num_rounds))
    speed_ups = {arm: span.tokens_per_s / plain.tokens_per_s for arm, span in spans.items()}
    for (way, delay_ms), span in spans.items():
        report.row(
            part="ahead",
            acceptance=RATE,
            K=NUM_DRAFT_TOKENS,
            drafting=way,
            added_delay_ms=delay_ms,
            speed_up=speed_ups[way, delay_ms],
            **span.columns,
        )
    for delay_ms, asked in ASKED.items():
        report.check(f"ahead, {delay_ms:g} ms added each way", speed_ups["ahead", delay_ms], asked, kind="at least")


async def _measure(num_rounds: int) -> tuple[Span, dict[tuple[str, float], Span]]:
    """Plain decoding, and each arm (way of drafting, added delay in ms), in turns over the same engines."""
    config = emulated_config(RATE)
    with LocalStack(config) as stack, contextlib.ExitStack() as resources:
        (draft_address,) = stack.config.orchestrator.draft_addresses
        proxy = resources.enter_context(ProxyProcess(draft_address, Conditions(delay_ms=DELAY_MS)))
        async with contextlib.AsyncExitStack() as clients:
            arms = {}
            for way, setting in (("synchronous", "off"), ("ahead", "on")):
                for delay_ms, address in ((0.0, draft_address), (DELAY_MS, proxy.address)):
                    speculation = dataclasses.replace(config.orchestrator.speculation, draft_ahead=setting)
                    section = dataclasses.replace(
                        stack.config.orchestrator, draft_addresses=(address,), speculation=speculation
                    )
                    own = resources.enter_context(orchestrator(dataclasses.replace(stack.config, orchestrator=section)))
                    arms[way, delay_ms] = Client(await clients.enter_async_context(connected(own.address)))
            plain, spans = Span(), dict.fromkeys(arms, Span())
            for client in arms.values():
                await client.ask("on", 64, num_speculative_tokens=NUM_DRAFT_TOKENS)
            while any(span.num_rounds < num_rounds for span in spans.values()):
                for arm, client in arms.items():
                    answer = await client.ask("on", ANSWER_TOKENS, num_speculative_tokens=NUM_DRAFT_TOKENS)
                    spans[arm] += span_of(answer, NUM_DRAFT_TOKENS + 1)
                plain += span_of(await next(iter(arms.values())).ask("off", ANSWER_TOKENS), 0)
            return plain, spans
