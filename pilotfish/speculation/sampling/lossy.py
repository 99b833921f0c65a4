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
from dataclasses import replace

import msgspec
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.logits import process
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import AcceptanceMode, SamplingParams


def stands(blocks: BlockedLogits, rows: Sequence[Row], candidates: Sequence[Sequence[int]]) -> list[list[bool]]:
    """Whether each of a row's candidates, token ids, stands at its position."""
    width = max(map(len, candidates), default=0)
    if not width:
        return [[] for _ in candidates]
    distribution = process(blocks, [_at_some_temperature(row) for row in rows])
    padded = to_device([[*ids, *[0] * (width - len(ids))] for ids in candidates], torch.int64, blocks.logits.device)
    log_norm = distribution.log_norm()  # [R, 1]
    probs = (distribution.scores_at(padded) - log_norm).exp()  # [R, C]
    scores = distribution.dense_scores().double()  # [R, V]
    entropy = log_norm - (scores.exp() * scores.masked_fill(scores == -torch.inf, 0)).sum(1, True) / log_norm.exp()
    samplings = [row.sampling for row in rows]
    epsilon, delta = _column(samplings, "typical_epsilon", probs), _column(samplings, "typical_delta", probs)
    typical = probs > torch.minimum(epsilon, delta * (-entropy).exp())
    # As many tokens are likelier than the candidate.
    likelier = (scores.unsqueeze(1) > distribution.scores_at(padded).unsqueeze(2)).sum(2)
    within = probs >= (-log_norm).exp() - _column(samplings, "tolerance_delta", probs)
    tolerated = within & (likelier < _column(samplings, "tolerance_top_k", probs)) & (probs > 0)
    modes = [[sampling.acceptance is AcceptanceMode.TYPICAL] for sampling in samplings]
    result = torch.where(torch.tensor(modes, device=probs.device), typical, tolerated).tolist()
    return [row[: len(ids)] for row, ids in zip(result, candidates, strict=True)]


def _at_some_temperature(row: Row) -> Row:
    if not row.sampling.is_greedy:
        return row
    return replace(row, sampling=msgspec.structs.replace(row.sampling, temperature=1.0))


def _column(samplings: Sequence[SamplingParams], name: str, like: torch.Tensor) -> torch.Tensor:
    """float64 [R, 1]"""
    return to_device([[float(getattr(sampling, name))] for sampling in samplings], torch.float64, like.device)
