from __future__ import annotations

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


def test_a_cut_draft_is_rejected():
    for seed in range(50):
        num_accepted, token_id = decide_one(log_probs(0.6, 0.3, 0.1), [2, 0], [one_hot(2), one_hot(0)], seed, top_k=2)
        assert num_accepted == 0
        assert token_id in (0, 1)


def test_a_certain_draft_is_accepted():
    logits = log_probs(0.0, 1.0, 0.0)
    assert decide_one(logits, [1, 1], [one_hot(1), one_hot(1)]) == (2, 1)


def test_the_residual_excludes_what_the_draft_overrates():
    """target 0.5, 0.3, 0.2; draft 0.9, 0.1, 0: after a rejection of token 0 only 1 and 2 are left, half each."""
    probs = SparseDistribution((0, 1), (0.9, 0.1))
    recovered = [decide_one(log_probs(0.5, 0.3, 0.2)[:2], [0], [probs], seed) for seed in range(600)]
    tokens = [token_id for num_accepted, token_id in recovered if num_accepted == 0]
    assert set(tokens) == {1, 2}
    assert 0.4 < tokens.count(1) / len(tokens) < 0.6


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


def test_one_distribution_per_draft():
    with pytest.raises(ValueError):
        decide_one(log_probs(0.5, 0.5), [0, 1], [one_hot(0)])


def test_blocks_are_independent_of_each_other():
    logits = torch.randn(9, 300, generator=torch.Generator().manual_seed(0))
    sampling = [SamplingParams(seed=seed, acceptance=AcceptanceMode.REJECTION, top_p=0.9) for seed in range(3)]
    rows = [Row(sampling[index // 3], index % 3, None) for index in range(9)]
    probs = SparseDistribution(tuple(range(10)), (0.1,) * 10)
    blocks = [DraftBlock(first, [first, 2], [probs, probs], DraftTree.chain(2)) for first in (0, 3, 6)]
    together = decide(process(BlockedLogits.of(logits), rows).select, rows, blocks)
    for index, block in enumerate(blocks):
        own = slice(3 * index, 3 * index + 3)
        alone = decide(
            process(BlockedLogits.of(logits[own]), rows[own]).select, rows[own], [DraftBlock(0, *fields_of(block))]
        )
        assert alone == [together[index]]


def fields_of(block: DraftBlock):
    return block.draft_token_ids, block.draft_probs, block.tree


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


def test_a_rejected_sibling_is_neither_tried_again_nor_recovered():
    """Target 0.5, 0.3, 0.2 with candidates 0 (twice) and 1: what is left at the end is 2."""
    logits = log_probs(0.5, 0.3, 0.2)[:1].repeat(4, 1)
    outcomes = [decide_tree(logits, [0, 0, 1], [one_hot(0), one_hot(0), one_hot(1)], (-1,) * 3, s) for s in range(600)]
    assert {path for path, _ in outcomes} == {(0,), (2,), ()}
    assert {token_id for path, token_id in outcomes if path == ()} == {2}
    assert sum(path == (0,) for path, _ in outcomes) / 600 == pytest.approx(0.5, abs=0.08)
    assert sum(path == (2,) for path, _ in outcomes) / 600 == pytest.approx(0.3, abs=0.08)


def test_a_sibling_outside_its_own_distribution_is_passed_over():
    logits = log_probs(0.0, 1.0, 0.0)
    assert decide_tree(logits, [0, 1], [one_hot(2), one_hot(1)], (-1, -1)) == ((1,), 1)


def test_siblings_that_use_the_target_up_leave_it_as_fallback(monkeypatch):
    monkeypatch.setattr(
        "pilotfish.speculation.sampling.rejection.uniform",
        lambda keys, count: torch.full((len(keys), count), 1.5).double(),
    )
    probs = [one_hot(0), one_hot(1), one_hot(0)]
    picks = {decide_tree(log_probs(0.5, 0.5).repeat(2, 1), [0, 1, 0], probs, (-1,) * 3, s)[1] for s in range(40)}
    assert picks == {0, 1}
