import pytest
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.greedy import choose, match
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import SamplingParams


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ([4, 7, 0, 0, 0, 0], (0, 3)),  # the second child of the first
        ([5, 0, 8, 0, 0, 0], (1,)),
        ([5, 0, 6, 0, 0, 9], (1, 4)),
        ([6, 6, 6, 6, 6, 6], ()),
    ],
)
def test_a_tree_matches_along_the_targets_own_path(choices, expected):
    """4 and 5 under the root, 6 and 7 under 4, 6 under 5."""
    assert match(DraftTree((-1, -1, 0, 0, 1)), [4, 5, 6, 7, 6], choices) == expected


def test_near_ties_are_decided_by_the_logits_not_by_rounded_probabilities():
    logits = torch.full((1, 100), -20.0)
    logits[0, 7] = 10.0
    logits[0, 70] = torch.nextafter(torch.tensor(10.0), torch.tensor(11.0))
    assert choose(BlockedLogits.of(logits), ()) == [70]


def test_bias_counts_and_the_tail_parameters_do_not():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    sampling = SamplingParams(temperature=0, logit_bias=((0, 5.0),), top_k=1, min_p=1.0)
    assert choose(BlockedLogits.of(logits), [Row(sampling, 0, None)]) == [0]
