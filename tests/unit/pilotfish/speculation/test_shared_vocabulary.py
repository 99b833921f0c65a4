"""Logits of a drafter in the ids of a target that has some of its tokens, under other ids."""

import pytest
import torch

from pilotfish.speculation.results import DraftToken
from pilotfish.speculation.shared_vocabulary import SharedVocabulary
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import SparseDistribution

SHARED = SharedVocabulary((2, 0), (1, 4), torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_stand_under_the_targets_ids(dtype: torch.dtype) -> None:
    logits = torch.tensor([[5.0, 6.0, 7.0], [1.0, 2.0, 3.0]], dtype=dtype)
    no = -torch.inf
    assert SHARED.in_target_ids(logits).tolist() == [[no, 7.0, no, no, 5.0], [no, 3.0, no, no, 1.0]]
    assert logits.tolist() == [[5.0, 6.0, 7.0], [1.0, 2.0, 3.0]]


def test_what_was_chosen_stands_under_the_drafters_ids() -> None:
    drafted = DraftToken(4, SparseDistribution((4, 1), (0.75, 0.25)))
    assert SHARED.draft(drafted) == DraftToken(0, SparseDistribution((0, 2), (0.75, 0.25)))
    assert SHARED.draft(DraftToken(1, None)) == DraftToken(2, None)
    assert SHARED.candidates([Candidate(1, -0.5), Candidate(4, -2.0)]) == [Candidate(2, -0.5), Candidate(0, -2.0)]


@pytest.mark.parametrize(("drafter_ids", "target_ids"), [((), ()), ((1, 2), (3,)), ((1, 2), (3, 3))])
def test_tokens_that_do_not_pair_are_refused(drafter_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"{len(drafter_ids)} tokens stand for"):
        SharedVocabulary(drafter_ids, target_ids, torch.device("cpu"))
