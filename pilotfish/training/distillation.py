"""The loss that all drafters share: cross entropy with the target's distribution over the draft vocabulary.

Shapes: R rows, V vocabulary that the drafter predicts (its own, reduced or not), H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


class Teacher:
    """The target's distribution, recomputed from its final hidden states: storing it would take V numbers a row."""

    def __init__(self, head: Tensor) -> None:
        """head: [V, H], the target's output projection, rows of the draft vocabulary only."""
        self._head = head

    def probs(self, last_hidden: Tensor, log_mass: Tensor) -> Tensor:
        """[R, V] of last_hidden [R, H] and the logsumexp over the whole vocabulary [R].

        Rows sum to the mass that the draft vocabulary has: a row whose next token it lacks teaches less.
        """
        logits = (last_hidden.to(self._head.dtype) @ self._head.T).float()
        return logits.sub_(log_mass.unsqueeze(1)).exp_()


def output_rows(target: PreTrainedModel, token_ids: Tensor) -> Tensor:
    """[V, H]: rows of the target's output projection, a copy."""
    weight: Tensor = target.get_output_embeddings().get_parameter("weight")
    return weight.detach()[token_ids].contiguous()


class _SoftCrossEntropy(torch.autograd.Function):
    """Keeps the gradient instead of log-probabilities: one tensor of [R, V] in place of four."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, probs: Tensor, weights: Tensor) -> Tensor:
        wide = logits.float()
        mass = probs.sum(-1)
        log_total = wide.logsumexp(-1)
        losses = mass * log_total - (probs * wide).sum(-1)
        gradient = wide.sub_(log_total.unsqueeze(1)).exp_().mul_(mass.unsqueeze(1)).sub_(probs)
        ctx.save_for_backward(gradient.mul_(weights.unsqueeze(1)).to(logits.dtype))
        return (losses * weights).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None


def soft_cross_entropy(logits: Tensor, probs: Tensor, weights: Tensor) -> Tensor:
    """Scalar: the sum over rows of weights [R] times the cross entropy of softmax(logits) [R, V] against probs [R, V].

    No gradient flows into probs and weights.
    """
    loss: Tensor = _SoftCrossEntropy.apply(logits, probs, weights)  # type: ignore[no-untyped-call]
    return loss
