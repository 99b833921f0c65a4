"""Which tokens a head can propose."""

from __future__ import annotations

import pytest
import torch

from pilotfish.training.data.samples import Sample
from pilotfish.training.vocabulary import draft_vocabulary


def test_draft_vocabulary_is_the_frequent_tokens_of_answers() -> None:
    tokens = torch.tensor([9, 9, 5, 7, 5, 5, 7, 3])
    none = torch.empty(8, 0)
    counted = Sample(2, tokens, none, none, tokens, none)
    chosen, coverage = draft_vocabulary([counted], size=2, vocab_size=30)
    assert chosen.tolist() == [5, 7]
    assert coverage == pytest.approx(5 / 6)
    chosen, coverage = draft_vocabulary([counted], size=5, vocab_size=30)
    assert chosen.tolist() == [0, 1, 3, 5, 7]
    assert coverage == 1
