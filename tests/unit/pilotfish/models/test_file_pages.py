"""What of a model is in memory while it is loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pilotfish.models.file_pages import release_pages
from tests.support.tiny_llama import save_printable_tokenizer, tiny_llama

LOADING = Path(__file__).parents[4] / "benchmarks" / "loading_memory.py"
NUM_LAYERS = 5
"""Of 23 MB each."""
SIZES = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4}


def resident_bytes(address: int) -> int:
    """Memory that the mapping at the address takes of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        head = line.split()[0]
        if "-" in head and ":" not in head and int(head.split("-")[0], 16) <= address < int(head.split("-")[1], 16):
            return next(int(each.split()[1]) << 10 for each in lines if each.startswith("Rss:"))
    raise AssertionError("nothing is mapped there")


def test_a_view_of_a_file_is_read_again_after_its_memory_has_gone(tmp_path: Path) -> None:
    values = torch.arange(1 << 20, dtype=torch.float32)
    save_file({"values": values}, tmp_path / "file.safetensors")
    view = load_file(tmp_path / "file.safetensors")["values"]
    assert torch.equal(view, values)
    assert resident_bytes(view.data_ptr()) >= view.nbytes
    release_pages(view)
    assert resident_bytes(view.data_ptr()) < view.nbytes // 8
    assert torch.equal(view, values)


def test_other_memory_stays_as_it_is() -> None:
    """What madvise would fill with zeros."""
    values = torch.ones(1 << 20)
    release_pages(values)
    release_pages(values[:0])
    assert bool((values == 1).all())


def test_what_lies_behind_an_expanded_view_stays_as_it_is(tmp_path: Path) -> None:
    save_file({"first": torch.ones(1024), "second": torch.ones(1 << 20)}, tmp_path / "file.safetensors")
    views = load_file(tmp_path / "file.safetensors")
    views["second"].fill_(2)
    release_pages(views["first"].expand(1024, 1024))
    assert bool((views["second"] == 2).all())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model to warm up with, and one of 130 MB."""
    found = [tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("model")]
    for folder, num_layers in zip(found, (1, NUM_LAYERS), strict=True):
        model = tiny_llama(num_hidden_layers=num_layers, vocab_size=4096, max_position_embeddings=512, **SIZES)
        model.to(torch.bfloat16).save_pretrained(folder)
        save_printable_tokenizer(folder)
    return found


@pytest.mark.parametrize(
    ("way", "quantization", "most"),
    [
        ("to a GPU", "int8", 0.3),
        ("torch on the CPU", "none", 1.3),
        ("native kernels", "int8", 1.3),
        ("a rank's part, kept on the CPU", "none", 1.3 / 4),
        ("a rank's part, kept on the CPU", "fp8", 1.3 / 4),
    ],
)
def test_the_whole_model_never_is_in_memory_beside_its_copy(
    folders: list[Path], way: str, quantization: str, most: float
) -> None:
    """By the most that its process takes while it loads, over the bytes of the checkpoint; of four ranks one."""
    command = [sys.executable, str(LOADING), "--worker", way, quantization, *map(str, folders)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed goes back to the system at once
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    peak_bytes, _ = json.loads(done.stdout.splitlines()[-1])
    whole_bytes = sum(path.stat().st_size for path in folders[1].glob("*.safetensors"))
    assert peak_bytes < most * whole_bytes
