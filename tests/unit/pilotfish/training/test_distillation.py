"""The shared loss against torch's own operations."""

from __future__ import annotations

import torch

from pilotfish.training.distillation import Teacher, soft_cross_entropy


def test_teacher_gives_the_targets_distribution_over_a_part_of_the_vocabulary() -> None:
    torch.manual_seed(0)
    head, hidden = torch.randn(12, 5), torch.randn(3, 5)
    logits = hidden @ head.T
    probs = Teacher(head[[1, 4, 9]]).probs(hidden, logits.logsumexp(-1))
    torch.testing.assert_close(probs, logits.softmax(-1)[:, [1, 4, 9]])


def test_value_and_gradient_are_those_of_the_weighted_cross_entropy() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 7, requires_grad=True)
    probs = torch.rand(4, 7)  # mass below or above one: rows need not be normalised
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0])
    expected = -(weights[:, None] * probs * logits.log_softmax(-1)).sum()
    loss = soft_cross_entropy(logits, probs, weights)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * loss, logits)[0], torch.autograd.grad(3 * expected, logits)[0])
