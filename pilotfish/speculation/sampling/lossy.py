"""Acceptance that gives up exactness for speed: a draft token stands where the target finds it likely enough.

`typical` (Medusa, 2401.10774): its probability is above min(epsilon, delta * exp(-entropy)).
`tolerance` (the relaxed acceptance of TensorRT-LLM): it is one of the top_k likeliest, and its probability at most
delta below the likeliest's.

Both judge by the processed distribution, that of temperature 1 where the request's is 0: what a grammar forbids or a
cut removes never stands.

Shapes: R rows, V vocabulary, C candidates of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits, block_sums
from pilotfish.speculation.sampling.logits import process
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import AcceptanceMode, SamplingParams

_LEAST_SCORE = -1e4
"""Score of a token whose probability is 0, so that its product with that is 0, too."""


def stands(blocks: BlockedLogits, rows: Sequence[Row], candidates: Sequence[Sequence[int]]) -> list[list[bool]]:
    """Whether each of a row's candidates, token ids, stands at its position. All rows have some."""
    samplings = [row.sampling for row in rows]
    scores = process(blocks, [_at_some_temperature(row) for row in rows]).dense_scores()  # float32 [R, V], 0 at most
    width = max(map(len, candidates))
    padded = to_device([[*ids, *[0] * (width - len(ids))] for ids in candidates], torch.int64, scores.device)
    chosen = scores.gather(1, padded)  # [R, C]
    log_norm = block_sums(scores.exp()).log_()  # [R, 1]
    probs = (chosen - log_norm).exp()
    is_typical = torch.tensor([[sampling.acceptance is AcceptanceMode.TYPICAL] for sampling in samplings])
    standing = probs > 0
    if is_typical.any():
        entropy = log_norm - block_sums(scores.exp() * scores.clamp(min=_LEAST_SCORE)) / log_norm.exp()
        bound = _column(samplings, "typical_delta", probs) * (-entropy).exp()
        typical = probs > torch.minimum(_column(samplings, "typical_epsilon", probs), bound)
        standing &= typical | ~is_typical.to(probs.device)
    if not is_typical.all():
        num_likelier = torch.stack([(scores > each).sum(1) for each in torch.split(chosen, 1, dim=1)], dim=1)
        tolerated = num_likelier < _column(samplings, "tolerance_top_k", probs)
        tolerated &= probs >= (-log_norm).exp() - _column(samplings, "tolerance_delta", probs)
        standing &= tolerated | is_typical.to(probs.device)
    return [row[: len(ids)] for row, ids in zip(standing.tolist(), candidates, strict=True)]


def _at_some_temperature(row: Row) -> Row:
    if not row.sampling.is_greedy:
        return row
    return msgspec.structs.replace(row, sampling=msgspec.structs.replace(row.sampling, temperature=1.0))


def _column(samplings: Sequence[SamplingParams], name: str, like: torch.Tensor) -> torch.Tensor:
    """float64 [R, 1]"""
    return to_device([[float(getattr(sampling, name))] for sampling in samplings], torch.float64, like.device)
