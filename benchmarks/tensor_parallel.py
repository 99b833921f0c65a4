"""Does a target in several ranks compute what it does in one process, what does the channel between them cost, and
what does each rank of a 70B hold?

What a step waits for the channel is the way there: from the call on rank 0 until the last rank has the step unpacked
and could compute, by the clock that all processes of a machine share. Nothing is answered: the ranks meet in their
first sum. The parts of the way and the round trip of an order that is answered are reported beside it. On a machine
with fewer cores than ranks, ranks wait for a core, too, and times of whole steps say nothing about tensor parallelism.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from report import Report, parser
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.config import default_cache_dir
from pilotfish.models.pull import pull_model
from pilotfish.parallel.inventory import take_inventory
from pilotfish.planning.memory import plan_memory

COMPARE = Path(__file__).parent / "ranks" / "compare.py"
LLAMA_70B = Path(__file__).parents[1] / "pilotfish" / "planning" / "data" / "llama-3.1-70b"
SMOLLM2 = "smollm2-135m-instruct"
SAMPLES, QUICK_SAMPLES = 2000, 300
RANK_COUNTS = (1, 2, 4, 8)
GPU_MEMORY_GB = 80.0
MOST_DIFFERENCE = 1e-3
MOST_CHANNEL_MS = 0.2


def save_tiny_llama(folder: Path) -> None:
    """Random weights, large enough that attention matters."""
    torch.manual_seed(5)
    sizes = {"vocab_size": 1000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 1024}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    model.save_pretrained(folder)


def compare(folder: Path, num_ranks: int, samples: int) -> dict[str, Any]:
    """What compare.py found."""
    command = [sys.executable, str(COMPARE), str(folder), str(num_ranks), str(samples)]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def _same(is_same: bool) -> str:
    return "the same" if is_same else "NOT the same"


def add_equality(report: Report, name: str, folder: Path, num_ranks: int, samples: int) -> None:
    found = compare(folder, num_ranks, samples)
    differences: dict[str, float] = found["differences"]
    channel: dict[str, dict[str, list[float]]] = found["channel_ms"]
    times = {
        kind: {part: statistics.median(values) for part, values in parts.items()} for kind, parts in channel.items()
    }
    slow = {
        kind: {part: values[int(0.99 * len(values))] for part, values in parts.items()}
        for kind, parts in channel.items()
    }
    report.row(
        what=f"{name}, TP {num_ranks}",
        found=f"logits differ by at most {max(differences.values()):.1e}, argmax {_same(found['same_argmax'])}; "
        + "; ".join(_described(kind, parts, slow[kind]) for kind, parts in times.items()),
        differences=differences,
        decode_ms={"one process": found["decode_one_process_ms"], "ranks": found["decode_ranks_ms"]},
        channel_ms=times,
        channel_p99_ms=slow,
    )
    thousandths = 1e3 * max(differences.values())
    report.check(f"{name} TP {num_ranks}: logits differ by", thousandths, MOST_DIFFERENCE * 1e3, "thousandths")
    for kind, parts in times.items():
        report.check(f"{name} TP {num_ranks}: channel, {kind}", parts["there_ms"], MOST_CHANNEL_MS, "ms")


def _described(kind: str, parts: dict[str, float], slow: dict[str, float]) -> str:
    return (
        f"{kind}: {parts['there_ms']:.3f} ms (p99 {slow['there_ms']:.3f}) there, of them packing "
        f"{parts['pack_ms']:.3f}, on the way {parts['arrive_ms']:.3f}, unpacking {parts['unpack_ms']:.3f}; "
        f"{parts['round_trip_ms']:.3f} there and back"
    )


def add_memory(report: Report) -> None:
    plan = plan_memory("llama-3.1-70b", take_inventory(LLAMA_70B), RANK_COUNTS, GPU_MEMORY_GB)
    for row in plan.rows:
        room = f"{row.num_kv_blocks:,} blocks, {row.num_kv_tokens:,} tokens" if row.num_kv_blocks else "do not fit"
        report.row(
            what=f"70B, TP {row.num_ranks}, {row.weights}",
            found=f"{row.weight_bytes / 1e9:.2f} GB of weights, {row.kv_bytes_per_token:,} bytes/token; {room}",
            memory=msgspec.to_builtins(row),
        )
    num_bytes = {row.num_ranks: row.weight_bytes for row in plan.rows if row.weights == "bfloat16"}
    report.check("70B, TP 8: bytes of a rank over an eighth of all", num_bytes[8] / (num_bytes[1] / 8), 1.001)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    samples = QUICK_SAMPLES if options.quick else SAMPLES
    conditions = {"dtype": "float32", "threads a rank": 1, "channel samples": samples, "backend": "gloo, loopback"}
    report = Report("Do ranks equal one process, and what do they cost?", conditions)
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_llama(Path(folder))
        for num_ranks in (2, 4):
            add_equality(report, "tiny Llama", Path(folder), num_ranks, samples)
    add_equality(report, SMOLLM2, pull_model(SMOLLM2, default_cache_dir()), 3, samples)
    add_memory(report)
    Console().print("\n".join(f"{row['what']}: {row['found']}" for row in report.rows))
    report.finish(options, has_shown_rows=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
