"""What is planted comes out: the same text from both models, and agreement as often as was asked for."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.shared.planted import NUM_CANDIDATES, Planting, plant
from pilotfish.models.decoder import StepInput

NUM_ROWS = 40_000
VOCAB_SIZE = 4096


def rows(num_rows: int) -> tuple[list[int], list[int]]:
    """Tokens and positions, no two rows of which are the same."""
    generator = np.random.default_rng(0)
    return generator.integers(0, VOCAB_SIZE, num_rows).tolist(), list(range(num_rows))


@pytest.mark.parametrize("acceptance", [0.5, 0.8, 1.0])
def test_candidates_are_right_as_often_as_the_probabilities_that_they_have_say(acceptance: float) -> None:
    planting = Planting(VOCAB_SIZE, acceptance)
    said, drafted = planting.said(*rows(NUM_ROWS)), planting.drafted(*rows(NUM_ROWS))
    shares = (said == drafted).mean(axis=0)
    assert planting.probabilities[0] == acceptance
    assert shares == pytest.approx(planting.probabilities, abs=4 * 0.5 / NUM_ROWS**0.5)
    assert all(len(set(candidates)) == NUM_CANDIDATES for candidates in drafted.tolist())


def test_a_token_is_said_whatever_the_logits_and_depends_on_the_one_before_it_and_its_place() -> None:
    planting, logits = Planting(VOCAB_SIZE, 0.8), torch.randn(3, VOCAB_SIZE, generator=torch.manual_seed(0))
    target, drafter = (SimpleNamespace(forward=lambda step: logits.clone()[: len(step.logit_rows)]) for _ in range(2))
    plant(target, planting, drafts=False)
    plant(drafter, planting, drafts=True)
    step = StepInput([5, 9, 9, 7], [0, 1, 2, 3], [], [1, 2, 3])
    assert target.forward(step).argmax(-1).tolist() == planting.said([9, 9, 7], [1, 2, 3])[:, 0].tolist()
    assert len(set(planting.said([9, 9, 7], [1, 2, 1])[:, 0].tolist())) == 3
    best = drafter.forward(step).softmax(-1).topk(NUM_CANDIDATES)
    assert best.indices.tolist() == planting.drafted([9, 9, 7], [1, 2, 3]).tolist()
    # What is left over is for tokens that a drafter does not list.
    expected = torch.tensor(planting.probabilities) / sum(planting.probabilities)
    assert torch.allclose(best.values, expected.expand(3, -1), atol=1e-4)
