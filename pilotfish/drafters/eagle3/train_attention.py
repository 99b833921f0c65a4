"""Attention of an EAGLE-3 head in training, over conversations and several draft depths.

Shapes: T tokens of the batch, A active rows, N query heads, M key/value heads, D head size; a and t those of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pilotfish.models.feature_head import FIRST_KEY


@dataclass(frozen=True, slots=True)
class Segment:
    """One conversation in a batch."""

    rows: slice
    """Rows among the T tokens."""
    active: slice
    """Rows among the A active ones; they are the segment's last."""


def attend(
    query: Tensor, roots: tuple[Tensor, Tensor], drafted: Sequence[tuple[Tensor, Tensor]], segment: Segment
) -> Tensor:
    """[a, N * D] for the a active rows of a segment.

    query: [A, N, D]; roots: key and value [T, M, D] of depth 0; drafted: those of depths 1 to d, [A, M, D].
    """
    depth = len(drafted)
    key, value = (part[segment.rows] for part in roots)
    own = query[segment.active]
    own = own.view(len(own), key.shape[1], -1, own.shape[-1])  # [a, M, G, D]
    num_active, num_rows = own.shape[0], key.shape[0]
    scores = torch.einsum("amgd,tmd->mgat", own, key)
    last_seen = torch.arange(num_rows - num_active, num_rows, device=key.device).unsqueeze(1) - depth
    keys = torch.arange(num_rows, device=key.device)
    scores = scores.masked_fill((keys > last_seen) | (keys < FIRST_KEY), -torch.inf)
    # Depth j's key of a draft lies d - j rows before row q. Rows with none before them have no loss.
    diagonals = [
        (part[0][segment.active].roll(depth - at, 0), part[1][segment.active].roll(depth - at, 0))
        for at, part in enumerate(drafted, 1)
    ]
    for diagonal_key, _ in diagonals:
        score = torch.einsum("amgd,amd->mga", own, diagonal_key)
        scores = torch.cat((scores, score.unsqueeze(-1)), dim=-1)
    weights = (scores.float() * own.shape[-1] ** -0.5).softmax(-1).to(value.dtype)
    attended = torch.einsum("mgat,tmd->amgd", weights[..., :num_rows], value)
    for at, (_, diagonal_value) in enumerate(diagonals):
        attended = attended + torch.einsum("mga,amd->amgd", weights[..., num_rows + at], diagonal_value)
    return attended.flatten(1)


def attend_at_once(
    query: Tensor, roots: tuple[Tensor, Tensor], drafted: Sequence[tuple[Tensor, Tensor]], segments: Sequence[Segment]
) -> Tensor:
    """[A, N * D], as attend computes it, of all S segments in one kernel: padded in front to t and a rows."""
    rows, is_key = _padded(
        [slice(segment.rows.start + FIRST_KEY, segment.rows.stop) for segment in segments], query.device
    )
    active, is_active = _padded([segment.active for segment in segments], query.device)
    depth, num_active, num_rows = len(drafted), active.shape[1], rows.shape[1]
    at = torch.arange(num_active, device=query.device).unsqueeze(1)
    before = torch.arange(num_rows, device=query.device) <= at + num_rows - num_active - depth
    diagonals = [(at + index - depth == at.T).expand(len(rows), -1, -1) for index in range(1, depth + 1)]
    seen = torch.cat((before & is_key.unsqueeze(1), *diagonals), dim=-1)  # [S, a, t + depth * a]
    seen = seen | ~seen.any(-1, keepdim=True)  # what sees nothing has no loss, but its gradient would be NaN
    keys, values = (
        torch.cat((root[rows], *(part[active] for part in parts)), dim=1).transpose(1, 2)
        for root, *parts in zip(roots, *drafted, strict=True)
    )
    attended = functional.scaled_dot_product_attention(
        query[active].transpose(1, 2),
        keys.repeat_interleave(query.shape[1] // keys.shape[1], 1),
        values.repeat_interleave(query.shape[1] // values.shape[1], 1),
        attn_mask=seen.unsqueeze(1),
    )
    return attended.transpose(1, 2)[is_active].flatten(1)


def _padded(parts: Sequence[slice], device: torch.device) -> tuple[Tensor, Tensor]:
    """int64 and bool [S, longest]: each part's rows at its end, and which of them are its own."""
    bounds = torch.tensor([(part.start, part.stop) for part in parts], device=device)
    longest = max(part.stop - part.start for part in parts)
    rows = bounds[:, 1:] + torch.arange(-longest, 0, device=device)
    return rows.clamp(min=0), rows >= bounds[:, :1]
