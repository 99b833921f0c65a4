import pytest
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.logits import process
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.rejection import DraftBlock, decide
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution


def decide_one(logits: torch.Tensor, drafts, probs, seed: int = 0, **fields) -> tuple[int, int]:
    sampling = SamplingParams(seed=seed, acceptance=AcceptanceMode.REJECTION, **fields)
    rows = [Row(sampling, 5 + offset, None) for offset in range(len(drafts) + 1)]
    block = DraftBlock(0, drafts, probs, DraftTree.chain(len(drafts)))
    path, token_id = decide(process(BlockedLogits.of(logits), rows).select, rows, [block])[0]
    assert path == tuple(range(len(path)))
    return len(path), token_id


def decide_tree(logits: torch.Tensor, drafts, probs, parents, seed: int = 0) -> tuple[tuple[int, ...], int]:
    sampling = SamplingParams(seed=seed, acceptance=AcceptanceMode.REJECTION)
    tree = DraftTree(parents)
    rows = [Row(sampling, 5 + len(path), None) for path in tree.paths]
    return decide(process(BlockedLogits.of(logits), rows).select, rows, [DraftBlock(0, drafts, probs, tree)])[0]


def log_probs(*probs: float) -> torch.Tensor:
    return torch.tensor([probs]).log().repeat(3, 1)


def one_hot(token_id: int) -> SparseDistribution:
    return SparseDistribution((token_id,), (1.0,))


def test_an_impossible_draft_is_rejected_and_never_recovered():
    logits = log_probs(0.5, 0.0, 0.25, 0.25)
    for seed in range(50):
        num_accepted, token_id = decide_one(logits, [1, 0], [one_hot(1), one_hot(0)], seed)
        assert num_accepted == 0
        assert token_id != 1


def test_an_empty_residual_falls_back_to_the_target(monkeypatch):
    """Distributions equal up to rounding, and a rejection all the same."""
    monkeypatch.setattr(
        "pilotfish.speculation.sampling.rejection.uniform",
        lambda keys, count: torch.full((len(keys), count), 1.5).double(),
    )
    probs = SparseDistribution((0, 1), (0.5, 0.5))
    picks = {decide_one(log_probs(0.5, 0.5), [0], [probs], seed)[1] for seed in range(40)}
    assert picks == {0, 1}


def test_a_draft_outside_its_own_distribution_ends_the_block():
    logits = log_probs(0.0, 1.0, 0.0)
    assert decide_one(logits, [1, 1], [one_hot(1), one_hot(2)]) == (1, 1)


@pytest.mark.parametrize("prob", [0.0, -1.0, float("nan")])
def test_a_draft_without_a_probability_counts_as_never_proposed(prob):
    logits = log_probs(0.5, 0.25, 0.25)
    for seed in range(20):
        num_accepted, token_id = decide_one(logits, [1], [SparseDistribution((0, 1), (1.0, prob))], seed)
        assert num_accepted == 0
        assert token_id == decide_one(logits, [], [], seed)[1]


def test_siblings_are_tried_until_one_is_accepted():
    """The target says 2 for certain after the root, then 1: the third sibling and its second child."""
    logits = torch.full((6, 4), -torch.inf)
    logits[0, 2] = logits[3, 1] = logits[5, 3] = 0.0
    drafts = [0, 1, 2, 3, 1]
    assert decide_tree(logits, drafts, [one_hot(token_id) for token_id in drafts], (-1, -1, -1, 2, 2)) == ((2, 4), 3)


def test_a_sibling_outside_its_own_distribution_is_passed_over():
    logits = log_probs(0.0, 1.0, 0.0)
    assert decide_tree(logits, [0, 1], [one_hot(2), one_hot(1)], (-1, -1)) == ((1,), 1)
