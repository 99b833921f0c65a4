"""What a head can propose follows what is said."""

import torch

from pilotfish.training.vocabulary import refitted_vocabulary


def test_frequent_tokens_take_the_place_of_those_that_never_occur() -> None:
    own = torch.tensor([1, 2, 3, 50, 90])
    assert refitted_vocabulary(own, {70: 5, 90: 3, 1: 1}).tolist() == [1, 2, 3, 70, 90]
    assert refitted_vocabulary(own, {70: 5, 71: 9, 72: 2}).tolist() == [1, 2, 70, 71, 72]


def test_a_token_that_occurred_once_changes_nothing() -> None:
    own = torch.tensor([1, 2, 3])
    assert refitted_vocabulary(own, {8: 1}).tolist() == [1, 2, 3]
    assert refitted_vocabulary(own, {}).tolist() == [1, 2, 3]


def test_of_many_the_most_frequent_are_kept() -> None:
    assert refitted_vocabulary(torch.tensor([1, 2]), {1: 2, 5: 3, 6: 9, 7: 2}).tolist() == [5, 6]
    assert refitted_vocabulary(torch.tensor([1, 2]), {2: 3, 5: 3, 6: 9}).tolist() == [2, 6]
