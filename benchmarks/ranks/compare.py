"""A model in one process and in ranks, the same steps through both: `python compare.py FOLDER RANKS SAMPLES`.

Prints JSON: the largest difference of logits by kind of step, medians of steps and samples of the channel in
milliseconds. A process of its own, since the loss of a rank ends it, and so that nothing is left behind.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from report import interleaved_ms

from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import read_weights
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.parallel.messages import Setup
from pilotfish.parallel.ranks import start_ranks
from pilotfish.speculation.trees import DraftTree
from pilotfish.types import BLOCK_SIZE

CONTEXT = 1024
NUM_BLOCKS = 64
BLOCKS = [5, 2, 9, 7, 11, 3]
WARM_UP = 20
TREE = DraftTree((-1, -1, 1, 1))
FULL_BATCH, CONTEXT_BLOCKS = 64, 64
FULL_BATCH_STEPS = 256
"""Then they begin again, which is rare enough not to show in the 99th percentile."""
"""64 sequences of 1,024 tokens each: the largest step of the default configuration."""


def step(tokens: Sequence[int], start: int, tree: DraftTree | None = None) -> StepInput:
    part = SequenceSlice(0, len(tokens), start, BLOCKS, tree)
    return StepInput(tokens, part.positions(), [part], range(len(tokens)))


def conversation(decoder: Decoder) -> dict[str, Tensor]:
    """Logits of every kind of step."""
    decoder.allocate(NUM_BLOCKS)
    text = [(37 * index + 3) % 90 for index in range(60)]
    logits: dict[str, Tensor] = {"prefill": decoder.forward(step(text[:33], 0)).clone()}
    logits["chunked prefill"] = decoder.forward(step(text[33:], 33)).clone()
    logits["decode"] = decoder.forward(step([11], 60)).clone()
    logits["verify"] = decoder.forward(step([12, 50, 51, 52], 61)).clone()
    logits["after a rollback"] = decoder.forward(step([60, 61], 62)).clone()
    logits["tree"] = decoder.forward(step([62, 70, 71, 72, 73], 64, TREE)).clone()
    # The accepted path: nodes 1 and 3.
    slots = {place: BLOCKS[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for place in range(64, 70)}
    decoder.move_kv([(slots[66], slots[65]), (slots[68], slots[66])])
    logits["after the tree"] = decoder.forward(step([63], 67)).clone()
    return logits


def full_batches() -> list[StepInput]:
    """Decoding of FULL_BATCH sequences, token after token: a few of them enter a new block in every step.

    Only the channel carries it, there is no room to compute it.
    """
    return [_full_batch(token) for token in range(FULL_BATCH_STEPS)]


def _full_batch(token: int) -> StepInput:
    width = CONTEXT_BLOCKS + FULL_BATCH_STEPS // BLOCK_SIZE + 1
    places = [CONTEXT_BLOCKS * BLOCK_SIZE - 1 + token + row % BLOCK_SIZE for row in range(FULL_BATCH)]
    slices = [
        SequenceSlice(row, 1, place, list(range(row * width, row * width + place // BLOCK_SIZE + 1)))
        for row, place in enumerate(places)
    ]
    return StepInput([1] * FULL_BATCH, places, slices, range(FULL_BATCH))


def channel_ms(ranks: ParallelDecoder, steps: Sequence[StepInput], samples: int) -> dict[str, list[float]]:
    """Samples of each part of an order's way, sorted."""
    orders = itertools.cycle(steps)
    for _ in range(WARM_UP):
        ranks.ping(next(orders))
    times = [asdict(ranks.ping(next(orders))) for _ in range(samples)]
    return {part: sorted(each[part] for each in times) for part in times[0]}


def main() -> None:
    folder, num_ranks, samples = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    model = read_weights(folder, torch.float32).eval().requires_grad_(False)
    whole = TransformersDecoder(model, deterministic=False, max_context_tokens=CONTEXT)
    setup = Setup(
        num_ranks=num_ranks,
        folder=str(folder),
        dtype="float32",
        device="cpu",
        quantization="none",
        attention="auto",
        num_threads=1,
        deterministic=False,
        max_context_tokens=CONTEXT,
        log_level="WARNING",
        log_format="human",
    )
    ranks = start_ranks(setup)
    expected, found = conversation(whole), conversation(ranks)
    differences = {name: float((found[name] - expected[name]).abs().max()) for name in expected}
    same_argmax = all(torch.equal(found[name].argmax(-1), expected[name].argmax(-1)) for name in expected)
    decode, verify = step([64], 68), step([64, 1, 2, 3, 4, 5], 68)
    runs: list[Callable[[], object]] = [lambda: whole.forward(decode), lambda: ranks.forward(decode)]
    one_ms, ranks_ms = interleaved_ms(runs, max(20, samples // 10))
    channel = {"verify, 1 sequence": [verify], f"decode, {FULL_BATCH} sequences of 1,024 tokens": full_batches()}
    report = {
        "differences": differences,
        "same_argmax": same_argmax,
        "decode_one_process_ms": one_ms,
        "decode_ranks_ms": ranks_ms,
        "channel_ms": {name: channel_ms(ranks, steps, samples) for name, steps in channel.items()},
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
