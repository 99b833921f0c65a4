"""How close is one engine step to what the machine can do?

A decode step must read every weight once, so weight bytes over measured read bandwidth is its floor. The
same model is timed in the same run with the native kernels (the default), with torch's own operations
(`compile: false`) and with transformers' eager forward. Everything is a ratio within this run.
"""

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch
from shared.report import Report, interleaved_ms, median_ms, parser
from transformers import DynamicCache

from pilotfish.config import CpuKernels, EngineConfig, Quantization, default_cache_dir
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.factory import BuiltDecoder, build_decoder
from pilotfish.models.loading import load_model
from pilotfish.types import BLOCK_SIZE

MODEL = "smollm2-135m-instruct"
CONTEXT = 256
PROMPT = 1024
NUM_BLOCKS = 600


def read_bandwidth_gb_s(num_threads: int) -> float:
    """Best of several reads of 512 MB by torch's sum."""
    torch.set_num_threads(num_threads)
    data = torch.ones(128_000_000)
    return max(data.numel() * 4 / (median_ms(data.sum, 3, warm_up=1) * 1e6) for _ in range(3))


def decode_step(num_sequences: int, rows_each: int, context: int, *, num_token_ids: int = 40_000) -> StepInput:
    """num_sequences sequences with context tokens in the cache, rows_each new rows each, all logits wanted.

    num_token_ids: the vocabulary has more.
    """
    width = -(-(context + rows_each) // BLOCK_SIZE)
    slices = [
        SequenceSlice(index * rows_each, rows_each, context, range(1 + index * width, 1 + (index + 1) * width))
        for index in range(num_sequences)
    ]
    total = num_sequences * rows_each
    positions = [context + row for _ in range(num_sequences) for row in range(rows_each)]
    return StepInput([(7 * row + 11) % num_token_ids for row in range(total)], positions, slices, range(total))


def prefill_steps(chunk: int) -> list[StepInput]:
    blocks = range(1, PROMPT // BLOCK_SIZE + 1)
    steps = []
    for start in range(0, PROMPT, chunk):
        rows = range(start, start + chunk)
        wanted = [chunk - 1] if start + chunk == PROMPT else []
        steps.append(
            StepInput([row * 31 % 40000 for row in rows], rows, [SequenceSlice(0, chunk, start, blocks)], wanted)
        )
    return steps


def build(
    compile_kernels: bool, num_threads: int, quantization: Quantization = "none", kernels: CpuKernels = "auto"
) -> BuiltDecoder:
    """The default model's decoder, with a pool of NUM_BLOCKS."""
    torch.set_num_threads(num_threads)
    built = build_decoder(
        load_model(MODEL, cache_dir=default_cache_dir()),
        EngineConfig(compile=compile_kernels, quantization=quantization, kernels=kernels),
        num_threads=num_threads,
        cache_dir=Path(default_cache_dir()),
    )
    built.decoder.allocate(NUM_BLOCKS)
    return built


class Eager:
    """transformers' own forward with a DynamicCache of CONTEXT tokens."""

    def __init__(self) -> None:
        self.model = load_model(MODEL, cache_dir=default_cache_dir()).model
        self._cache = DynamicCache(config=self.model.config)
        with torch.inference_mode():
            self.model(torch.arange(CONTEXT)[None], past_key_values=self._cache, logits_to_keep=1)

    def step(self, rows: int) -> None:
        with torch.inference_mode():
            self.model(torch.arange(rows)[None], past_key_values=self._cache)
            self._cache.crop(-rows)

    def prefill(self) -> None:
        with torch.inference_mode():
            self.model(torch.tensor([[row * 31 % 40000 for row in range(PROMPT)]]), logits_to_keep=1)


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument(
        "--quantization",
        nargs="*",
        choices=[name for name in get_args(Quantization) if name != "none"],
        default=[],
        help="time the native kernels on quantised weights as well",
    )
    options_parser.add_argument(
        "--kernels",
        nargs="*",
        choices=[name for name in get_args(CpuKernels) if name != "auto"],
        default=[],
        help="time the native kernels for no more than this as well",
    )
    options = options_parser.parse_args(arguments)
    samples, prefill_samples = (15, 2) if options.quick else (60, 7)
    num_threads = len(os.sched_getaffinity(0))
    built = build(True, num_threads)
    others = {name: build(True, num_threads, name).decoder for name in options.quantization}
    others |= {name: build(True, num_threads, kernels=name).decoder for name in options.kernels}
    built_plain = build(False, num_threads)
    native, plain, eager = built.decoder, built_plain.decoder, Eager()
    weight_bytes = sum(parameter.numel() * parameter.itemsize for parameter in eager.model.parameters())
    conditions = {
        "model": MODEL,
        "dtype": "bfloat16",
        "threads": num_threads,
        "context": CONTEXT,
        "samples": samples,
        "deterministic": f"native {built.deterministic}, torch {built_plain.deterministic}",
    }
    report = Report("How close is one engine step to what the machine can do?", conditions)
    limits = []

    def floor_ms() -> float:
        limits.append(read_bandwidth_gb_s(num_threads))
        return weight_bytes / (statistics.median(limits) * 1e6)

    floor_ms()
    shapes = {
        "decode, 1 sequence": (1, 1),
        "verify, 8 tokens": (1, 8),
        "decode, 8 sequences": (8, 1),
        "verify, 16 tokens": (1, 16),
        "decode, 16 sequences": (16, 1),
    }
    steps = {name: decode_step(*shape, CONTEXT) for name, shape in shapes.items()}
    torch.set_num_threads(1)  # as in an engine process with native kernels
    kernels = {"native": native, **others}
    kernels_ms = interleaved_ms(
        [lambda d=d, s=s: d.forward(s) for d in kernels.values() for s in steps.values()], samples
    )
    native_ms = kernels_ms[: len(steps)]
    torch.set_num_threads(num_threads)
    plain_ms = interleaved_ms([lambda s=s: plain.forward(s) for s in steps.values()], max(3, samples // 4))
    eager_ms = interleaved_ms([lambda: eager.step(1), lambda: eager.step(8)], max(3, samples // 4))
    floor = floor_ms()
    for index, name in enumerate(steps):
        report.row(
            step=name,
            native_ms=native_ms[index],
            torch_ms=plain_ms[index],
            eager_ms=eager_ms[index] if index < 2 else "",
            native_over_floor=native_ms[index] / floor,
            torch_over_floor=plain_ms[index] / floor,
            **{
                f"{other}_over_native": kernels_ms[place * len(steps) + index] / native_ms[index]
                for place, other in enumerate(others, start=1)
            },
        )
    torch.set_num_threads(1)
    chunks = prefill_steps(512)
    native_prefill, eager_prefill = [], []
    for _ in range(prefill_samples):
        torch.set_num_threads(1)
        native_prefill.append(median_ms(lambda: [native.forward(step) for step in chunks], 1, warm_up=0))
        torch.set_num_threads(num_threads)
        eager_prefill.append(median_ms(eager.prefill, 1, warm_up=0))
    ours, theirs = statistics.median(native_prefill), statistics.median(eager_prefill)
    report.row(step=f"prefill, {PROMPT} tokens", native_ms=ours, eager_ms=theirs)
    report.conditions["read_bandwidth_gb_s"] = round(statistics.median(limits), 1)
    report.conditions["floor_ms"] = round(floor, 2)
    report.check("decode step over the bandwidth floor, as it starts", native_ms[0] / floor, 2.1)
    report.check("decode step over the bandwidth floor, compile: true", native_ms[0] / floor, 1.7)
    report.check("verify 8 tokens over one decode step", native_ms[1] / native_ms[0], 1.15)
    report.check("batch of 8 sequences over one decode step", native_ms[2] / native_ms[0], 1.3)
    report.check("prefill of 1,024 tokens over transformers eager", ours / theirs, 1.0)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
