from __future__ import annotations

import pytest
import torch

from pilotfish.speculation.blocks import BlockedLogits
from pilotfish.speculation.greedy import choose, num_matching
from pilotfish.speculation.penalties import Row
from pilotfish.types import SamplingParams


@pytest.mark.parametrize(
    ("drafts", "choices", "expected"),
    [([], [4], 0), ([4], [4, 5], 1), ([3], [4, 5], 0), ([4, 9, 6], [4, 5, 6, 7], 1), ([4, 5], [4, 5, 6], 2)],
)
def test_num_matching(drafts, choices, expected):
    assert num_matching(drafts, choices) == expected


def test_near_ties_are_decided_by_the_logits_not_by_rounded_probabilities():
    logits = torch.full((1, 100), -20.0)
    logits[0, 7] = 10.0
    logits[0, 70] = torch.nextafter(torch.tensor(10.0), torch.tensor(11.0))
    assert choose(BlockedLogits.of(logits), ()) == [70]


def test_bias_counts_and_the_tail_parameters_do_not():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    sampling = SamplingParams(temperature=0, logit_bias=((0, 5.0),), top_k=1, min_p=1.0)
    assert choose(BlockedLogits.of(logits), [Row(sampling, 0, None)]) == [0]
