"""A batch of conversations for the training of an EAGLE-3 head. Shapes are those of `train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.drafters.eagle3.train_attention import Segment
from pilotfish.models.feature_head import FIRST_KEY
from pilotfish.training.data.samples import Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """See the module."""

    segments: list[Segment]
    token_ids: Tensor  # int64 [T]
    previous: Tensor  # [T, 3H], the feature of the position before each row
    positions: Tensor  # int64 [T]
    active: Tensor  # int64 [A]
    last_hidden: Tensor  # [A, H]
    log_mass: Tensor  # [A]
    choices: Tensor  # int64 [A]
    known: Tensor  # bool [A], rows whose last_hidden is known
    counts: Tensor  # bool [depths, A], rows with a loss at each depth
    ends: Tensor  # bool [A], rows at the deepest depth of a draft that lies in the answer as a whole


def collate(samples: Sequence[Sample], num_depths: int) -> Batch:
    """The batch of these conversations, one after the other. num_depths: draft depths that it is trained for."""
    segments, active, counts, ends = [], [], [], []
    row = active_row = 0
    for sample in samples:
        length = len(sample.token_ids)
        first = max(FIRST_KEY, sample.prompt_len - num_depths)
        segments.append(Segment(slice(row, row + length), slice(active_row, active_row + length - first)))
        active.append(torch.arange(row + first, row + length))
        at = torch.arange(length - first)
        is_answer = at + first >= sample.prompt_len - 1
        counts.append(torch.stack([is_answer & (at >= depth) for depth in range(num_depths)]))
        ends.append(at + first >= max(FIRST_KEY, sample.prompt_len - 1) + num_depths - 1)
        row, active_row = row + length, active_row + length - first
    device = samples[0].token_ids.device
    rows = torch.cat(active).to(device)
    return Batch(
        segments=segments,
        token_ids=torch.cat([sample.token_ids for sample in samples]),
        # The first token of a conversation has no position before it: nobody sees its row.
        previous=torch.cat([torch.cat((sample.features[:1] * 0, sample.features[:-1])) for sample in samples]),
        positions=torch.cat([torch.arange(len(sample.token_ids)) for sample in samples]).to(device),
        active=rows,
        last_hidden=torch.cat([sample.last_hidden for sample in samples])[rows],
        log_mass=torch.cat([sample.log_mass for sample in samples])[rows],
        choices=torch.cat([sample.choices for sample in samples])[rows],
        known=torch.cat([torch.full((len(sample.token_ids),), sample.has_hidden) for sample in samples]).to(device)[
            rows
        ],
        counts=torch.cat(counts, dim=1).to(device),
        ends=torch.cat(ends).to(device),
    )
