"""How much memory of the host does loading a model take, over what it holds in the end?

A narrow deep Llama of random weights, in one file, is loaded in every way that a replica does it, each in a process of
its own. Torch's `meta` device stands for a GPU: what is brought there is read, and leaves the host's memory.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support
import torch
from shared.report import Report, parser
from torch import Tensor

from pilotfish.config import EngineConfig, Quantization
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.factory import build_decoder
from pilotfish.models.file_pages import move_weights
from pilotfish.models.loading import load_model
from pilotfish.models.scaled_linear import quantise_linears, weight_format_of
from pilotfish.parallel.sharded_model import load_shard
from tests.support.tiny_llama import save_printable_tokenizer, tiny_llama

NUM_RANKS = 4
NUM_LAYERS, QUICK_LAYERS = 40, 5
"""23 MB each."""
ASKED = 1.3
"""Peak over the bytes of the checkpoint, or of the rank's part."""
ASKED_ON_GPU = 0.3
GPU = torch.device("meta")
CPU = torch.device("cpu")
_TO = Tensor.to


class LoneRank:
    """A rank that loads its part and never computes."""

    rank, num_ranks = 1, NUM_RANKS

    def add(self, partial: Tensor) -> Tensor:
        return partial

    def gather(self, part: Tensor) -> Tensor:
        return part


def save_model(folder: Path, num_layers: int) -> Path:
    """Random weights, bfloat16."""
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4}
    model = tiny_llama(num_hidden_layers=num_layers, vocab_size=4096, max_position_embeddings=512, **sizes)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="50GB")
    save_printable_tokenizer(folder)
    return folder


def on_gpu(folder: Path, quantization: Quantization) -> object:
    model = load_model(str(folder), cache_dir=folder).model
    if (weight_format := weight_format_of(quantization)) is not None:
        quantise_linears(model, weight_format, GPU)
    move_weights(model, GPU)
    return model


def on_cpu(folder: Path, quantization: Quantization, *, native: bool) -> object:
    engine = EngineConfig(quantization=quantization, compile=native, deterministic=False)
    cache_dir = folder.parent / "cache"
    loaded = load_model(str(folder), cache_dir=cache_dir)
    return loaded, build_decoder(loaded, engine, num_threads=1, cache_dir=cache_dir)


def on_rank(folder: Path, quantization: Quantization) -> object:
    model = load_shard(folder, LoneRank(), torch.bfloat16, CPU, weight_format_of(quantization))
    return TransformersDecoder(model, deterministic=False, max_context_tokens=512)


WAYS: dict[str, Callable[[Path, Quantization], object]] = {
    "to a GPU": on_gpu,
    "torch on the CPU": lambda folder, quantization: on_cpu(folder, quantization, native=False),
    "native kernels": lambda folder, quantization: on_cpu(folder, quantization, native=True),
    "a rank's part, kept on the CPU": on_rank,
}
CASES: list[tuple[str, Quantization]] = [
    ("to a GPU", "none"),
    ("to a GPU", "int8"),
    ("to a GPU", "fp8"),
    ("torch on the CPU", "none"),
    ("native kernels", "none"),
    ("native kernels", "int8"),
    ("a rank's part, kept on the CPU", "none"),
    ("a rank's part, kept on the CPU", "int8"),
    ("a rank's part, kept on the CPU", "fp8"),
]


def to_reading(tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """Tensor.to; like a copy to a GPU, that to its stand-in reads what it takes."""
    if arguments[:1] == (GPU,) and tensor.device == CPU:
        tensor.clone()
    return _TO(tensor, *arguments, **options)


def measure_here(way: str, quantization: Quantization, small: Path, folder: Path) -> tuple[int, int]:
    """Bytes of this process that loading takes at most and leaves held. small: a model that is loaded before, so that
    what is imported and compiled is not counted."""
    Tensor.to = to_reading  # type: ignore[method-assign]
    WAYS[way](small, quantization)
    before = _status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    loaded = WAYS[way](folder, quantization)
    result = _status_bytes("VmHWM") - before, _status_bytes("VmRSS") - before
    del loaded
    return result


def measure(way: str, quantization: Quantization, small: Path, folder: Path) -> tuple[int, int]:
    """measure_here, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--worker", way, quantization, str(small), str(folder)]
    # What is freed goes back to the system at once: else its gaps are counted.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    finished = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, env=environment)
    peak_bytes, held_bytes = json.loads(finished.stdout.splitlines()[-1])
    return peak_bytes, held_bytes


def _status_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    match = re.search(rf"{name}:\s+(\d+) kB", status)
    assert match is not None, "Linux has it"
    return int(match[1]) << 10


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    with TemporaryDirectory() as place:
        small = save_model(Path(place) / "small", 1)
        folder = save_model(Path(place) / "model", QUICK_LAYERS if options.quick else NUM_LAYERS)
        whole_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        report = Report(
            "How much memory of the host does loading a model take?",
            {"checkpoint": f"{whole_bytes / 1e6:.0f} MB, bfloat16, one file", "ranks": NUM_RANKS},
        )
        for way, quantization in CASES:
            own_bytes = whole_bytes // NUM_RANKS if "rank" in way else whole_bytes
            peak_bytes, held_bytes = measure(way, quantization, small, folder)
            over = peak_bytes / own_bytes
            report.row(
                way=way,
                quantization=quantization,
                own_mb=own_bytes / 1e6,
                peak_mb=peak_bytes / 1e6,
                held_mb=held_bytes / 1e6,
                peak_over_own=over,
            )
            report.check(f"{way}, {quantization}: peak", over, ASKED_ON_GPU if "GPU" in way else ASKED)
    report.finish(options)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        _, _, way_, quantization_, *folders = sys.argv
        print(json.dumps(measure_here(way_, quantization_, *map(Path, folders))))  # type: ignore[arg-type]
    else:
        sys.exit(main())
