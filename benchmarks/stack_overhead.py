"""What do the services cost over the engine alone, in speed and in memory?

The same prompt is decoded plainly for the same number of tokens, in turn, by an engine in this process and through
client, orchestrator and target service. Resident memory of the target service is held against the model's bytes.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch
import uvloop
from report import Report, parser

from pilotfish.client.answer import GenerateOptions
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import Config
from pilotfish.engine.core import EngineCore
from pilotfish.engine.factory import build_engine
from pilotfish.launch.local_stack import LocalStack
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Verdict
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.types import ChatMessage, SamplingParams

PROMPT = "Write a long story about a harbour, its lighthouse and the people who live there."
NUM_TOKENS = 256


def engine_alone(core: EngineCore, prompt: tuple[int, ...], sequence_id: int) -> float:
    """Seconds for NUM_TOKENS tokens by the core alone, prefill included."""
    start = time.perf_counter()
    core.submit(OpenSequence(sequence_id, prompt, SamplingParams(temperature=0, max_tokens=NUM_TOKENS)))
    core.submit(Decode(sequence_id, len(prompt), NUM_TOKENS))
    num_tokens = 0
    while core.has_work:
        num_tokens += sum(len(event.token_ids) for event in core.step() if isinstance(event, Verdict))
    elapsed_s = time.perf_counter() - start
    core.submit(CloseSequence(sequence_id))
    assert num_tokens == NUM_TOKENS
    return elapsed_s


async def through_stack(address: str) -> float:
    """Seconds for the same through the services, as a connected client sees it."""
    options = GenerateOptions(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True, speculation="off")
    token_ids: list[int] = []
    async with AsyncInferenceClient(address) as client:
        start = time.perf_counter()
        await client.follow((ChatMessage("user", PROMPT),), options, timeout_s=600, on_tokens=token_ids.extend)
        elapsed_s = time.perf_counter() - start
    assert len(token_ids) == NUM_TOKENS
    return elapsed_s


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    samples = 3 if options.quick else 11
    config = Config()
    report = Report(
        "What do the services cost over the engine alone?",
        {"model": config.target.model, "tokens": NUM_TOKENS, "samples": samples, "sampling": "greedy", "in flight": 1},
    )
    with LocalStack(config) as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        core = build_engine(config, "target")
        tokenizer = Tokenizer.load(Path(core.model.tokenizer_path))
        prompt = tuple(tokenizer.apply_chat_template([ChatMessage("user", PROMPT)]))
        alone, stacked = [], []
        for index in range(-1, samples):
            torch.set_num_threads(1)
            times = engine_alone(core, prompt, index + 2), runner.run(through_stack(stack.address))
            if index >= 0:  # the first of each warms up
                alone.append(times[0])
                stacked.append(times[1])
        front_process = psutil.Process(stack.pid("target_service"))
        front = front_process.memory_info().rss
        resident = front + sum(child.memory_info().rss for child in front_process.children(recursive=True))
    folder = Path(core.model.tokenizer_path)
    weights = (folder / "model.safetensors").stat().st_size
    pool = core.kv_cache.pool.num_usable * core.kv_bytes_per_block
    ratios = [a / b for a, b in zip(alone, stacked, strict=True)]
    report.row(path="engine alone", tokens_per_s=NUM_TOKENS / statistics.median(alone))
    report.row(path="client, orchestrator, target", tokens_per_s=NUM_TOKENS / statistics.median(stacked))
    report.row(path="target resident MB (front process)", tokens_per_s=f"{resident / 1e6:.0f} ({front / 1e6:.0f})")
    report.row(path="weights MB, KV pool MB", tokens_per_s=f"{weights / 1e6:.0f}, {pool / 1e6:.0f}")
    report.check(
        "plain decoding through the stack over the engine alone", statistics.median(ratios), 0.95, kind="at least"
    )
    report.check("target resident set over weights x 1.5 + KV pool", resident / (1.5 * weights + pool), 1.0)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
