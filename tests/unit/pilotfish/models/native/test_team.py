"""Which thread computes what, and whose work is done again, changes no bit."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.native.build import find_compiler
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.types import BLOCK_SIZE
from tests.support.native_kernels import built_program
from tests.support.tiny_llama import tiny_llama

HERE = Path(__file__).parent
VOCAB = 512
NUM_STEPS = 40
CROWD = 4 * (os.cpu_count() or 1)
"""Threads of a team that is mostly off its cores."""


def has_thread_sanitizer(folder: Path) -> bool:
    """Whether a program with it can be built."""
    compiler = find_compiler()
    if compiler is None:
        return False
    command = [compiler, "-fsanitize=thread", "-x", "c++", "-", "-o", str(folder / "nothing")]
    return subprocess.run(command, input=b"int main() {}", capture_output=True, check=False).returncode == 0


def decoded(cache: Path, num_threads: int) -> Tensor:
    """Logits [NUM_STEPS, V] of one token after another."""
    model = tiny_llama(spread=1, vocab_size=VOCAB, hidden_size=256, intermediate_size=768, num_hidden_layers=3)
    model = model.to(torch.bfloat16)
    decoder = NativeDecoder(model, max_context_tokens=128, num_threads=num_threads, cache_dir=cache)
    num_blocks = -(-NUM_STEPS // BLOCK_SIZE)
    decoder.allocate(num_blocks + 1)
    block_ids = tuple(range(1, num_blocks + 1))
    logits = []
    for position in range(NUM_STEPS):
        step = StepInput(
            token_ids=(7 * position % VOCAB,),
            positions=(position,),
            slices=(SequenceSlice(first_row=0, num_rows=1, first_position=position, block_ids=block_ids),),
            logit_rows=(0,),
        )
        logits.append(decoder.forward(step)[0].clone())
    return torch.stack(logits)


def test_a_team_that_fights_for_its_cores_computes_the_same_bits(kernel_cache: Path) -> None:
    alone = decoded(kernel_cache, 1)
    assert torch.equal(decoded(kernel_cache, 2), alone)
    assert torch.equal(decoded(kernel_cache, CROWD), alone)


def test_a_helper_that_stays_away_is_overtaken_and_comes_back(tmp_path: Path) -> None:
    """Of the team alone, as only luck brings the kernels to this: team_takeover.cpp holds a helper within an item."""
    program = built_program(HERE / "team_takeover.cpp", tmp_path, "-Wall", "-Werror")
    told = subprocess.run([program], check=True, capture_output=True, text=True, timeout=240).stdout.splitlines()
    by_caller = " ".join("c" * 16)
    away = [f"{phase}: {by_caller}" for phase in ("overtaken", "without it", "without it, in one part")]
    assert told[:-1] == [*away, "settled", away[0]]
    name, _, committers = told[-1].partition(": ")
    assert name == "it comes back"
    assert "h" in committers
    assert {len(each) for each in committers.split(" ")} == {1}, "each item is committed once"


def test_nothing_races_but_what_an_overtaken_helper_reads(tmp_path: Path) -> None:
    if not has_thread_sanitizer(tmp_path):
        pytest.skip("no C++ compiler with ThreadSanitizer")
    program = built_program(HERE / "linear_races.cpp", tmp_path, "-O1", "-g1", "-march=native", "-fsanitize=thread")
    suppressions = HERE / "thread_sanitizer.supp"
    environment = {"TSAN_OPTIONS": f"suppressions={suppressions}"}
    result = subprocess.run([program], check=False, capture_output=True, text=True, timeout=240, env=environment)
    if "FATAL: ThreadSanitizer" in result.stderr:
        pytest.skip(f"ThreadSanitizer does not run here: {result.stderr.splitlines()[0]}")
    assert result.returncode == 0, result.stderr
