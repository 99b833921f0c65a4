"""What a lookup before the draft pool gains over the pool alone, by how much of an answer is copied from its prompt."""

import asyncio
import contextlib
import dataclasses

from emulation.client import Span, emulated_config, span_of
from emulation.grid import num_rounds_for
from shared.asking import Answer, ask, connected, orchestrator
from shared.report import Report

from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

RATE, NUM_DRAFT_TOKENS = 0.8, 5
NOISE, QUICK_NOISE = 0.015, 0.05
ANSWER_TOKENS, LEFT_OUT_TOKENS = 512, 33
STRETCH_TOKENS = 64
"""An answer copies so many tokens in a row, then says something new, and so on."""
SHARES = (0.0, 0.25, 0.5)
"""Parts of an answer that are copied."""
PROMPT_TOKENS, FIRST_TOKEN_ID = 8, 1000
COLUMNS = {
    "copied": "copied",
    "lookup": "lookup",
    "drafting": "drafting",
    "speed_up": "speed-up",
    "round_ms": "round ms",
    "tokens_per_round": "tokens a round",
    "rounds": "rounds",
}
Arm = tuple[str, str]
"""The lookup, and the way of drafting."""
ARMS: tuple[Arm, ...] = tuple((lookup, way) for way in ("synchronous", "ahead") for lookup in ("none", "suffix"))


def run_lookup(report: Report, *, quick: bool) -> None:
    """A row per arm and share; the gains over the pool alone as checks."""
    report.columns = COLUMNS
    report.conditions["sampling"] = "temperature 0"
    num_rounds = num_rounds_for(RATE, NUM_DRAFT_TOKENS, QUICK_NOISE if quick else NOISE)
    plain, spans = asyncio.run(_measure(num_rounds))
    speeds = {arm: span.tokens_per_s / plain.tokens_per_s for arm, span in spans.items()}
    for (copied, (lookup, way)), span in spans.items():
        report.row(
            part="lookup",
            acceptance=RATE,
            K=NUM_DRAFT_TOKENS,
            copied=copied,
            lookup=lookup,
            drafting=way,
            speed_up=speeds[copied, (lookup, way)],
            **span.columns,
        )
    for copied in SHARES:
        for way in ("synchronous", "ahead"):
            gain = speeds[copied, ("suffix", way)] / speeds[copied, ("none", way)]
            asked = 1.0 if copied else 0.98
            name = f"lookup before the pool over the pool alone, {way}, {copied:.0%} copied"
            report.check(name, gain, asked, kind="at least")


async def _measure(num_rounds: int) -> tuple[Span, dict[tuple[float, Arm], Span]]:
    """Plain decoding, and each arm at each share, in turns over the same engines: the same answers for all."""
    config = emulated_config(RATE)
    draft = dataclasses.replace(config.draft, suffix_shared_tokens=0)  # nothing of earlier answers helps
    config = dataclasses.replace(config, draft=draft)
    with LocalStack(config) as stack, contextlib.ExitStack() as resources:
        async with contextlib.AsyncExitStack() as clients:
            stubs: dict[Arm, pb_grpc.InferenceStub] = {}
            for lookup, way in ARMS:
                speculation = dataclasses.replace(
                    config.orchestrator.speculation,
                    num_speculative_tokens=NUM_DRAFT_TOKENS,
                    lookup=lookup,
                    draft_ahead="on" if way == "ahead" else "off",
                )
                section = dataclasses.replace(stack.config.orchestrator, speculation=speculation)
                own = resources.enter_context(orchestrator(dataclasses.replace(stack.config, orchestrator=section)))
                stubs[lookup, way] = await clients.enter_async_context(connected(own.address))
            plain, spans, turn = Span(), {(copied, arm): Span() for copied in SHARES for arm in ARMS}, 0
            while any(span.num_rounds < num_rounds for span in spans.values()):
                prompt = range(FIRST_TOKEN_ID + PROMPT_TOKENS * turn, FIRST_TOKEN_ID + PROMPT_TOKENS * (turn + 1))
                turn += 1
                answer = await _ask(stubs[ARMS[0]], pb.SPECULATION_MODE_OFF, prompt)
                plain += span_of(answer, 0)
                for copied, arm in spans:
                    # Greedy emulated text follows from its last tokens: the answer is the same one.
                    text = (*_parts(answer.token_ids, copied), *prompt)
                    drafted = await _ask(stubs[arm], pb.SPECULATION_MODE_ON, text)
                    assert drafted.token_ids == answer.token_ids
                    spans[copied, arm] += span_of(drafted, LEFT_OUT_TOKENS)
            return plain, spans


def _parts(token_ids: list[int], share: float) -> list[int]:
    """The stretches of an answer that are copied from the prompt."""
    if not share:
        return []
    period = round(STRETCH_TOKENS / share)
    return [token_id for index, token_id in enumerate(token_ids) if index % period < STRETCH_TOKENS]


async def _ask(stub: pb_grpc.InferenceStub, mode: pb.SpeculationMode, prompt: tuple[int, ...] | range) -> Answer:
    request = pb.GenerateRequest(
        tokens=pb.TokenPrompt(token_ids=prompt),
        max_tokens=ANSWER_TOKENS,
        temperature=0,
        ignore_eos=True,
        speculation=pb.SpeculationOptions(mode=mode),
    )
    return await ask(stub, request)
