import math
import random

import pytest

from pilotfish.speculation.trees.growth import Candidate, GrowingTree
from pilotfish.speculation.trees.tree import ROOT


def candidates(*probs: float) -> list[Candidate]:
    return [Candidate(100 + index, math.log(prob)) for index, prob in enumerate(probs)]


def test_the_likeliest_paths_are_expanded_and_kept():
    tree = GrowingTree(width=2)
    assert tree.frontier == (ROOT,)
    tree.extend([candidates(0.6, 0.3, 0.1)])
    assert tree.frontier == (0, 1)
    tree.extend([candidates(0.9, 0.1), candidates(0.7, 0.3)])  # 0.54, 0.06; 0.21, 0.09
    assert tree.frontier == (3, 5)
    grown = tree.finish(max_nodes=4)
    assert grown.nodes == (0, 1, 3, 5)
    assert grown.token_ids == (100, 101, 100, 100)
    assert grown.tree.parents == (-1, -1, 0, 1)


def test_what_is_too_unlikely_is_neither_expanded_nor_kept():
    tree = GrowingTree(width=3, min_confidence=0.25)
    tree.extend([candidates(0.6, 0.3, 0.1)])
    assert tree.frontier == (0, 1)
    tree.extend([candidates(0.5, 0.4), candidates(0.9, 0.1)])  # 0.3, 0.24; 0.27, 0.03
    assert tree.frontier == (3, 5)
    assert tree.finish(max_nodes=9).nodes == (0, 1, 3, 5)


def test_the_best_node_is_kept_however_unlikely():
    tree = GrowingTree(width=3, min_confidence=0.9)
    tree.extend([candidates(0.6, 0.3)])
    assert tree.frontier == ()
    assert tree.finish(max_nodes=9).nodes == (0,)


def test_no_other_tree_of_that_size_is_worth_more():
    generator = random.Random(5)
    for _ in range(30):
        tree = GrowingTree(width=3)
        values: dict[int, float] = {ROOT: 1.0}
        for _ in range(4):
            level = [[generator.random() for _ in range(3)] for _ in tree.frontier]
            first, parents = len(tree), tree.frontier
            tree.extend([[Candidate(0, math.log(prob)) for prob in probs] for probs in level])
            for parent, probs in zip(parents, level, strict=True):
                for prob in probs:
                    values[first] = values[parent] * prob
                    first += 1
        grown = tree.finish(max_nodes=7)
        kept = sorted((values[node] for node in grown.nodes), reverse=True)
        assert kept == pytest.approx(sorted(list(values.values())[1:], reverse=True)[:7])
