"""What do quantised weights cost in answers, and what do they save in time?

Both against the bfloat16 weights in the same run. Answers: over text that the model samples itself, or that of
--dataset (jsonl with `token_ids`), how often the most likely next token is the same, how far the distributions are
apart, and how the perplexities compare. Time: steps taken in turns, so that slow spells of the machine hit all alike.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from engine_step import CONTEXT, MODEL, build, decode_step
from report import Report, interleaved_ms, parser
from torch import Tensor

from pilotfish.bench.prompts import load_prompts
from pilotfish.config import Quantization, default_cache_dir
from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.pull import pull_model
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.types import BLOCK_SIZE, ChatMessage

QUANTIZATIONS: tuple[Quantization, ...] = ("lossless", "int8", "int4")
ANSWER_TOKENS = 64
STEPS = {"decode": (1, 1), "verify_8": (1, 8), "verify_16": (1, 16), "batch_8": (8, 1)}
"""Sequences, and rows of each."""
SEED = 3


@dataclass(slots=True)
class Divergence:
    """Sums over positions of one format against bfloat16."""

    positions: int = 0
    agreeing: int = 0
    identical: int = 0
    divergence: float = 0.0
    surplus: float = 0.0
    """Of the text's negative log likelihood, in nats."""

    def add(self, logits: Tensor, reference: Tensor, targets: Tensor) -> None:
        """Logits [T, V] of both, the tokens [T] that follow."""
        ours, theirs = logits.log_softmax(-1), reference.log_softmax(-1)
        self.positions += len(targets)
        self.agreeing += int((logits.argmax(-1) == reference.argmax(-1)).sum())
        self.identical += int((logits == reference).all(-1).sum())
        self.divergence += float((theirs.exp() * (theirs - ours)).sum())
        self.surplus += float((theirs - ours).gather(-1, targets[:, None]).sum())


def read_texts(path: Path, num_tokens: int) -> list[list[int]]:
    """Token ids of the first lines that hold num_tokens together."""
    texts: list[list[int]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if sum(map(len, texts)) >= num_tokens:
            break
        try:
            texts.append([int(token_id) for token_id in json.loads(line)["token_ids"]])
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path}, line {number}: no object with token_ids: {error}") from None
    return texts


def forward(decoder: NativeDecoder, token_ids: Sequence[int], start: int = 0) -> Tensor:
    """Logits [T, V] of token_ids[start:], a view that the next call overwrites."""
    rows = range(start, len(token_ids))
    blocks = range(1, len(token_ids) // BLOCK_SIZE + 2)
    step = StepInput(list(token_ids[start:]), rows, [SequenceSlice(0, len(rows), start, blocks)], range(len(rows)))
    return decoder.forward(step)


def sample_texts(decoder: NativeDecoder, num_tokens: int) -> list[list[int]]:
    """Prompts of our own, each with an answer of ANSWER_TOKENS at temperature 1."""
    tokenizer = Tokenizer.load(pull_model(MODEL, default_cache_dir()))
    generator = torch.Generator().manual_seed(SEED)
    texts: list[list[int]] = []
    for prompt in load_prompts():
        if sum(map(len, texts)) >= num_tokens:
            break
        text = tokenizer.apply_chat_template([ChatMessage("user", prompt.text)])[-200:]
        computed = 0  # tokens whose keys and values the decoder has
        for _ in range(ANSWER_TOKENS):
            probs = forward(decoder, text, computed)[-1].softmax(-1)
            computed = len(text)
            text.append(int(torch.multinomial(probs, 1, generator=generator)))
        texts.append(text)
    return texts


def native(quantization: Quantization, num_threads: int) -> NativeDecoder:
    """The default model on the native kernels."""
    decoder = build(True, num_threads, quantization).decoder
    if not isinstance(decoder, NativeDecoder):
        raise SystemExit("the native kernels cannot be built here: see the log")
    return decoder


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--dataset", type=Path, help="jsonl with token_ids (default: text sampled here)")
    options_parser.add_argument("--tokens", type=int, default=2000, help="tokens to compare over, roughly")
    options = options_parser.parse_args(arguments)
    num_tokens, samples = (500, 15) if options.quick else (options.tokens, 60)
    num_threads = len(os.sched_getaffinity(0))
    reference = native("none", num_threads)
    decoders = {quantization: native(quantization, num_threads) for quantization in QUANTIZATIONS}
    torch.set_num_threads(1)
    texts = read_texts(options.dataset, num_tokens) if options.dataset else sample_texts(reference, num_tokens)
    divergences = {quantization: Divergence() for quantization in QUANTIZATIONS}
    for text in texts:
        expected, targets = forward(reference, text[:-1]).clone(), torch.tensor(text[1:])
        for quantization, decoder in decoders.items():
            divergences[quantization].add(forward(decoder, text[:-1]), expected, targets)
    everyone = [reference, *decoders.values()]
    steps = [decode_step(*shape, CONTEXT) for shape in STEPS.values()]
    times = interleaved_ms([lambda d=d, s=s: d.forward(s) for s in steps for d in everyone], samples)
    report = Report(
        "What do quantised weights cost in answers, and what do they save in time?",
        {"model": MODEL, "threads": num_threads, "tokens": divergences["int4"].positions, "context": CONTEXT},
    )
    report.row(weights="bfloat16", mb=reference.weight_bytes / 1e6, **_ratios(times, 0, len(everyone)))
    for index, quantization in enumerate(QUANTIZATIONS, start=1):
        found = divergences[quantization]
        report.row(
            weights=quantization,
            mb=decoders[quantization].weight_bytes / 1e6,
            **_ratios(times, index, len(everyone)),
            agreement=found.agreeing / found.positions,
            identical=found.identical / found.positions,
            kl_nats=found.divergence / found.positions,
            perplexity_x=math.exp(found.surplus / found.positions),
        )
    lossless = divergences["lossless"]
    report.check(
        "rows with bit-identical logits, lossless", lossless.identical / lossless.positions, 1.0, "", "equal to"
    )
    report.finish(options)
    return 0


def _ratios(times: Sequence[float], index: int, width: int) -> dict[str, float]:
    """Each step's time over that of the same step with bfloat16 weights."""
    return {f"{name}_x": times[row * width + index] / times[row * width] for row, name in enumerate(STEPS)}


if __name__ == "__main__":
    sys.exit(main())
