"""What is trained on packed rows: a parallel head and early exits.

Shapes: B rows, T tokens of a row, M anchors, K draft tokens, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from packed_training.parallel_head import ParallelHead, Places, save_parallel_head
from packed_training.target import PackedTarget, TargetStates
from packed_training.tokens import Rows
from pilotfish.drafters.eagle3.train import DEPTH_DECAY
from pilotfish.drafters.early_exit.checkpoint import save_exit
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.training.distillation import Teacher, output_rows, soft_cross_entropy


class Trainee(Protocol):
    """One drafter in training."""

    name: str
    module: nn.Module

    def loss(self, rows: Rows, states: TargetStates, num_anchors: int) -> Tensor:
        """Scalar, from so many positions of each row."""

    def agreement(self, rows: Rows, states: TargetStates) -> Tensor:
        """int64 [2 * K + 1], as training.loop.Objective.agreement."""

    def save(self, folder: Path) -> None:
        """Write weights and config.json."""


class ParallelHeadTrainee:
    """See parallel_head. All tokens of a draft are learned in one pass, a later one with less weight."""

    def __init__(self, name: str, head: ParallelHead, target: PackedTarget, num_draft_tokens: int) -> None:
        self.name = name
        self.module = head
        self._num_draft_tokens = num_draft_tokens
        model = target.loaded.model
        self._embeddings: Any = model.get_input_embeddings()
        self._token_ids = head.target_token_ids
        self._teacher = Teacher(output_rows(model, self._token_ids))

    def loss(self, rows: Rows, states: TargetStates, num_anchors: int) -> Tensor:
        anchors, is_anchor = rows.anchors(num_anchors)
        places = self._places(rows, anchors)
        hidden = self._hidden(rows, states, places)
        total = sum(DEPTH_DECAY**depth for depth in range(self._num_draft_tokens))
        loss = hidden.new_zeros((), dtype=torch.float32)
        for depth in range(self._num_draft_tokens):
            counts = (is_anchor & (places.at_anchors(rows.num_after) >= depth)).flatten()
            weights = counts * (DEPTH_DECAY**depth / total / counts.sum().clamp(min=1))
            last_hidden = places.at_anchors(states.last_hidden, depth).flatten(0, 1)
            probs = self._teacher.probs(last_hidden, places.at_anchors(states.log_mass, depth).flatten())
            loss = loss + soft_cross_entropy(self.module.logits(hidden[:, :, depth].flatten(0, 1)), probs, weights)
        return loss

    def agreement(self, rows: Rows, states: TargetStates) -> Tensor:
        anchors, is_anchor = rows.anchors(int(rows.starts_draft.sum(1).max()))
        places = self._places(rows, anchors)
        hidden = self._hidden(rows, states, places)
        agrees = torch.stack(
            [
                self._token_ids[self.module.logits(hidden[:, :, depth]).argmax(-1)]
                == places.at_anchors(states.choices, depth)
                for depth in range(self._num_draft_tokens)
            ],
            dim=2,
        )
        return _counts(agrees, is_anchor & (places.at_anchors(rows.num_after) >= self._num_draft_tokens - 1))

    def save(self, folder: Path) -> None:
        save_parallel_head(self.module, folder)

    def _places(self, rows: Rows, anchors: Tensor) -> Places:
        return Places(rows.positions, rows.sees_states, anchors, self._num_draft_tokens - 1)

    def _hidden(self, rows: Rows, states: TargetStates, places: Places) -> Tensor:
        """[B, M, K, H]"""
        features = torch.cat([states.inputs[layer] for layer in self.module.config.feature_layers], dim=-1)
        previous = torch.cat((features[:, :1] * 0, features[:, :-1]), dim=1)
        mask_embedding = self._embeddings.weight[self.module.mask_token_id]
        return self.module.draft(self._embeddings(rows.token_ids), mask_embedding, previous, places)


class ExitTrainee:
    """An exit as `pilotfish train early_exit` makes it: the first token is all there is to learn."""

    def __init__(self, name: str, head: ExitHead, target: PackedTarget, num_draft_tokens: int) -> None:
        self.name = name
        self.module = head
        self._target = target
        self._num_draft_tokens = num_draft_tokens
        self._teacher = Teacher(output_rows(target.loaded.model, head.token_map))

    def loss(self, rows: Rows, states: TargetStates, num_anchors: int) -> Tensor:
        anchors, is_anchor = rows.anchors(num_anchors)
        places = Places(rows.positions, rows.sees, anchors, 0)
        counts = is_anchor.flatten()
        logits = self.module.logits(places.at_anchors(self._hidden(rows, states)).flatten(0, 1))
        probs = self._teacher.probs(
            places.at_anchors(states.last_hidden).flatten(0, 1), places.at_anchors(states.log_mass).flatten()
        )
        return soft_cross_entropy(logits, probs, counts / counts.sum().clamp(min=1))

    def agreement(self, rows: Rows, states: TargetStates) -> Tensor:
        hidden = self._hidden(rows, states)
        agrees = (
            torch.stack([self.module.token_map[self.module.logits(row).argmax(-1)] for row in hidden]) == states.choices
        )
        drafts = _windows(agrees, self._num_draft_tokens)
        return _counts(drafts, rows.starts_draft & (rows.num_after >= self._num_draft_tokens - 1))

    def save(self, folder: Path) -> None:
        save_exit(self.module, folder)

    def _hidden(self, rows: Rows, states: TargetStates) -> Tensor:
        """What leaves the block, [B, T, H]."""
        entering = states.inputs[self.module.config.exit_layer].to(self.module.lm_head.weight.dtype)
        return self._target.run_layer(self.module.block, entering, **self._target.context(rows, entering))


def _windows(agrees: Tensor, num_draft_tokens: int) -> Tensor:
    """bool [B, T, K] of bool [B, T]: those of each position and of the K - 1 behind it, False beyond the end."""
    behind = agrees.new_zeros(len(agrees), num_draft_tokens - 1)
    return torch.cat((agrees, behind), dim=1).unfold(1, num_draft_tokens, 1)


def _counts(agrees: Tensor, counts: Tensor) -> Tensor:
    """int64 [2 * K + 1] of agrees bool [B, M, K] and whether a draft counts [B, M]; see loop.Objective.agreement."""
    drafts = agrees[counts].long()
    return torch.cat((counts.sum().view(1), drafts.sum(0), drafts.cummin(1).values.sum(0)))
