"""Which thread computes what, and whose work is done again, changes no bit."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.testing.tiny_llama import tiny_llama
from pilotfish.types import BLOCK_SIZE

VOCAB = 512
NUM_STEPS = 40
CROWD = 4 * (os.cpu_count() or 1)
"""Threads of a team that is mostly off its cores."""


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
