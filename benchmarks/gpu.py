"""What do decoding, verifying and drafting cost on a GPU, and what is speculation worth there?

Models of real shapes with random weights: what a step costs does not depend on the weights' values. How many drafts
are accepted does, so that is a synthetic process: each draft is accepted with a given probability, and the seed is
the same for all arms. Part 1 times steps by sequences and rows, recorded as CUDA graphs and not, against the time
that reading the weights takes. Part 2 runs rounds (draft K tokens, verify K + 1 rows) against plain decoding.

`--device cpu --models tiny` shows that it runs; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from engine_step import decode_step
from shared.report import Report, median_ms, parser, times_ms
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from pilotfish.config import EngineConfig
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.models.graphs.recorder import EagerRecorder
from pilotfish.models.graphs.shapes import Buckets
from pilotfish.types import BLOCK_SIZE


def llama_3(hidden: int, intermediate: int, layers: int, heads: int, **others: Any) -> dict[str, Any]:
    """A configuration of that family."""
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    common = {"vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
    return {**common, **sizes, "num_attention_heads": heads, "num_key_value_heads": 8, **others}


SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": llama_3(4096, 14336, 32, 32),
    "llama-3.2-1b": llama_3(2048, 8192, 16, 32, tie_word_embeddings=True),
    # A tenth of the layers of Llama-3.1-70B: what does not fit on one GPU, layer by layer.
    "llama-3.1-70b-8-layers": llama_3(8192, 28672, 8, 64),
    "tiny": llama_3(64, 96, 2, 4, vocab_size=512, num_key_value_heads=2),
}
"""As in the models' own config.json."""

SEQUENCES = (1, 4, 16, 64)
ROWS_EACH = (1, 4, 8)
ACCEPTANCE = (0.6, 0.8, 0.9)
DRAFT_TOKENS = (1, 3, 5, 7)
NUM_ROUNDS = 400
"""Rounds of the synthetic acceptance process for each sequence."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A decoder of a shape, with room for `SEQUENCES[-1]` sequences."""

    name: str
    decoder: TransformersDecoder
    weight_bytes: int


@contextmanager
def built(name: str, options: argparse.Namespace, device: torch.device, *, graphs: bool) -> Iterator[Arm]:
    """A model of random weights on the device, and its memory back at the end."""
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPES[name]), dtype=torch.bfloat16)
    model = model.eval().requires_grad_(False)
    weight_bytes = _read_bytes(model)
    limits = {"max_sequences": SEQUENCES[-1], "max_draft_tokens": max(ROWS_EACH) - 1}
    context = options.context + 2 * BLOCK_SIZE
    if device.type == "cuda":
        quantization, attention = options.quantization, options.attention
        engine = EngineConfig(
            quantization=quantization, device="cuda", attention=attention, cuda_graphs=graphs, **limits
        )
        decoder = build_gpu_decoder(model, engine, device, max_context_tokens=context)
        weight_bytes = _read_bytes(model)
    else:
        buckets = Buckets.of_engine(**limits, max_context_tokens=context) if graphs else None
        decoder = TransformersDecoder(
            model, deterministic=False, max_context_tokens=context, buckets=buckets, recorder=EagerRecorder()
        )
    decoder.allocate(1 + SEQUENCES[-1] * -(-context // BLOCK_SIZE))
    decoder.record_graphs()
    yield Arm(name, decoder, weight_bytes)
    del decoder, model
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _read_bytes(model: nn.Module) -> int:
    """Weights that a step reads: all but the embeddings, of which it takes a few rows, unless they are the head."""
    head = model.get_output_embeddings().weight  # type: ignore[operator]
    kept = [*model.parameters(), *model.buffers()]
    embeddings = model.get_input_embeddings().weight  # type: ignore[operator]
    return sum(t.nbytes for t in kept if t is not embeddings or embeddings is head)


def step_ms(arm: Arm, num_sequences: int, rows_each: int, context: int, samples: int) -> float:
    """Median time of a step, with its greedy tokens brought to the host, as the engine does."""
    step = decode_step(num_sequences, rows_each, context, num_token_ids=500)
    return median_ms(lambda: arm.decoder.forward(step).argmax(-1).tolist(), samples)


def bandwidth_gb_s(device: torch.device) -> float:
    """Bytes read a second, from copies of 1 GB (64 MB on a CPU), which read and write as much."""
    source = torch.zeros((1 << 30) if device.type == "cuda" else (1 << 26), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        target[:1].tolist()

    return 2 * source.nbytes / (min(times_ms(copy, 5, warm_up=1)) * 1e6)


def mean_tokens(acceptance: float, num_drafts: int) -> float:
    """Output tokens of a round: the accepted drafts and one more; (1 - a^(K+1)) / (1 - a) in the limit."""
    chooser = random.Random(20408)
    total = 0
    for _ in range(NUM_ROUNDS):
        accepted = 0
        while accepted < num_drafts and chooser.random() < acceptance:
            accepted += 1
        total += accepted + 1
    return total / NUM_ROUNDS


def time_steps(
    report: Report, arm: Arm, kind: str, floor_ms: float, samples: int, context: int
) -> dict[tuple[int, int], float]:
    """Rows of part 1; milliseconds by (sequences, rows of each)."""
    times: dict[tuple[int, int], float] = {}
    for num_sequences in SEQUENCES:
        for rows_each in ROWS_EACH:
            times[num_sequences, rows_each] = step_ms(arm, num_sequences, rows_each, context, samples)
            report.row(
                model=arm.name,
                kind=kind,
                sequences=num_sequences,
                rows_each=rows_each,
                ms=times[num_sequences, rows_each],
                over_floor=times[num_sequences, rows_each] / floor_ms,
            )
    return times


def speed_ups(report: Report, target: Arm, draft: Arm, options: argparse.Namespace, samples: int) -> float:
    """Rows of part 2; returns the best speed-up of one sequence at the highest acceptance, drafting included."""
    best = 0.0
    for num_sequences in SEQUENCES:
        plain = step_ms(target, num_sequences, 1, options.context, samples)
        draft_step = step_ms(draft, num_sequences, 1, options.context, samples)
        for num_drafts in DRAFT_TOKENS:
            rows = num_drafts + 1
            verify = step_ms(target, num_sequences, rows, options.context, samples)
            for acceptance in ACCEPTANCE:
                tokens = mean_tokens(acceptance, num_drafts)
                in_series = tokens * plain / (verify + num_drafts * draft_step)
                hidden = tokens * plain / (verify + options.round_trip_ms)
                if num_sequences == 1 and acceptance == ACCEPTANCE[-1]:
                    best = max(best, in_series)
                report.row(
                    model=target.name,
                    kind=f"speculation with {draft.name}",
                    sequences=num_sequences,
                    rows_each=rows,
                    ms=verify,
                    acceptance=acceptance,
                    tokens_a_round=tokens,
                    speed_up_in_series=in_series,
                    speed_up_drafts_hidden=hidden,
                )
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device on this machine: nothing is measured", file=sys.stderr)
        return 2
    device = resolve_device(options.device)
    enter_device(device)
    samples = 5 if options.quick else 30
    report = Report(
        "What do steps cost on a GPU, and what is speculation worth?", _conditions(options, device, samples)
    )
    bandwidth = bandwidth_gb_s(device)
    report.conditions["bandwidth_gb_s"] = round(bandwidth, 1)
    with torch.inference_mode():
        for name in options.models:
            decodes: dict[str, float] = {}
            for graphs in (False, True):
                with built(name, options, device, graphs=graphs) as arm:
                    kind = "graphs" if graphs else "eager"
                    floor_ms = arm.weight_bytes / (bandwidth * 1e6)
                    times = time_steps(report, arm, kind, floor_ms, samples, options.context)
                    decodes[kind] = times[1, 1]
            report.check(f"{name}: a decode with graphs over the bandwidth floor", decodes["graphs"] / floor_ms, 1.5)
            report.check(f"{name}: a decode with graphs over one without", decodes["graphs"] / decodes["eager"], 1.0)
            report.check(f"{name}: verifying 8 rows over decoding", times[1, 8] / times[1, 1], 1.2)
        if not options.no_speculation:
            names = (options.models[0], options.draft)
            with (
                built(names[0], options, device, graphs=True) as target,
                built(names[1], options, device, graphs=True) as draft,
            ):
                best = speed_ups(report, target, draft, options, samples)
            report.check(f"speed-up of {names[0]} at acceptance {ACCEPTANCE[-1]}", best, 2.0, kind="at least")
    if device.type == "cuda":
        report.conditions["peak_memory_gb"] = round(torch.cuda.max_memory_allocated(device) / 1e9, 1)
    report.finish(options)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    result = parser(__doc__)
    result.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to see that it runs")
    result.add_argument("--models", nargs="+", choices=list(SHAPES), default=["llama-3.1-8b", "llama-3.1-70b-8-layers"])
    result.add_argument("--draft", choices=list(SHAPES), default="llama-3.2-1b", help="of the first of the models")
    result.add_argument("--attention", choices=["auto", "flashinfer", "sdpa"], default="auto")
    result.add_argument("--quantization", choices=["none", "int8", "fp8"], default="none")
    result.add_argument("--context", type=int, default=512, help="tokens in the cache of each sequence")
    result.add_argument(
        "--round-trip-ms", type=float, default=0.5, help="of a drafter elsewhere whose drafts are ready"
    )
    result.add_argument("--no-speculation", action="store_true", help="time steps only")
    return result.parse_args(arguments)


def _conditions(options: argparse.Namespace, device: torch.device, samples: int) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": "bfloat16",
        "weights": f"random, quantization {options.quantization}",
        "attention": options.attention,
        "context": options.context,
        "acceptance": "synthetic",
        "samples": samples,
    }


if __name__ == "__main__":
    sys.exit(main())
