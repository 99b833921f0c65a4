"""Rejection sampling with sparse draft distributions (Leviathan et al. 2211.17192, algorithm 1;
Chen et al. 2302.01318, algorithm 2), of several candidates a position where the draft is a tree
(SpecInfer 2305.09781, algorithm 2).

A draft x is accepted when u < p(x) / q(x), p the target, q what x was drawn from. At a rejection p
becomes norm(max(0, p - q)) and the next sibling is tried against that; after the last one the
recovered token comes from it. When a whole path is accepted, the bonus comes from the target.
Every test and every resampling has a random number of its own (`noise.Stream`, and the order among
siblings): shared noise biases the output (vLLM #54282).

Shapes: R rows, V vocabulary, W walks, C candidate tokens of a walk, N residuals, E (residual, token) pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.coupling import keys_of, pick_rows
from pilotfish.speculation.sampling.logits import Distribution
from pilotfish.speculation.sampling.noise import Stream, uniform
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import SparseDistribution


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """The drafts of one sequence: row first_row decides the root's children, the one i + 1 later node i's."""

    first_row: int
    draft_token_ids: Sequence[int]
    draft_probs: Sequence[SparseDistribution]
    """What each draft was drawn from, its elder siblings given."""
    tree: DraftTree


class _Walk:
    """How far down one block's verification has come."""

    __slots__ = ("_block", "candidates", "left", "log_norm", "path")

    def __init__(self, block: DraftBlock) -> None:
        self._block = block
        self.path: list[int] = []
        self.candidates = self._candidates(0)
        """The children to try next, each with the probability that it was drawn with."""
        self.left: dict[int, float] | None = None
        """Unnormalised residual probability of the tokens where it differs from the target; None: nothing rejected."""
        self.log_norm = 0.0
        """Log of the normaliser of the row where candidates were rejected."""

    @property
    def row(self) -> int:
        """The row that decides what follows the path."""
        return self._block.first_row + (self.path[-1] + 1 if self.path else 0)

    def token_ids_at_stake(self) -> list[int]:
        """Tokens whose target probability the candidates ask for."""
        probs = self._block.draft_probs
        return list(dict.fromkeys(token_id for node, _ in self.candidates for token_id in probs[node].token_ids))

    def descend(self, left: dict[int, float], noise: Sequence[float], log_norm: float) -> None:
        """Move to the first accepted candidate, or learn the residual; left: target probabilities, mutated."""
        mass = 1.0  # of the whole residual, to which the values of `left` are relative
        for (node, draft_prob), number in zip(self.candidates, noise, strict=False):
            if number * draft_prob * mass < left[self._block.draft_token_ids[node]]:
                self.path.append(node)
                self.candidates = self._candidates(node + 1)
                return
            probs, rejected_mass = self._block.draft_probs[node], mass
            for token_id, prob in zip(probs.token_ids, probs.probs, strict=True):
                share = min(left[token_id], prob * rejected_mass)
                left[token_id] -= share
                mass -= share
            mass = max(0.0, mass)
        self.candidates = []
        self.left = left
        self.log_norm = log_norm

    def _candidates(self, row: int) -> list[tuple[int, float]]:
        """One that its own distribution does not hold counts as never proposed."""
        chosen = []
        for node in self._block.tree.children[row]:
            token_id, probs = self._block.draft_token_ids[node], self._block.draft_probs[node]
            prob = next((prob for held, prob in zip(probs.token_ids, probs.probs, strict=True) if held == token_id), 0)
            if prob > 0:
                chosen.append((node, prob))
        return chosen


DistributionOf = Callable[[list[int]], Distribution]
"""The target's distributions of the rows named."""


def decide(
    distribution_of: DistributionOf, rows: Sequence[Row], blocks: Sequence[DraftBlock]
) -> list[tuple[tuple[int, ...], int]]:
    """Per block: the accepted drafts, a path down its tree, and the recovered, bonus or plain token after them.

    Asks for the distributions of those rows alone that a walk comes to. Raises ValueError when a block has not one
    distribution per draft.
    """
    for block in blocks:
        if not len(block.draft_token_ids) == len(block.draft_probs) == len(block.tree):
            raise ValueError(f"{len(block.draft_token_ids)} drafts with {len(block.draft_probs)} distributions")
    walks = [_Walk(block) for block in blocks]
    while active := [walk for walk in walks if walk.candidates]:
        _descend(active, distribution_of, rows)
    token_ids = _sample_unrejected(distribution_of, rows, [walk.row for walk in walks if walk.left is None])
    token_ids |= _sample_recovered(distribution_of, rows, [walk for walk in walks if walk.left is not None])
    return [(tuple(walk.path), token_ids[walk.row]) for walk in walks]


def _descend(walks: Sequence[_Walk], distribution_of: DistributionOf, rows: Sequence[Row]) -> None:
    """Try the candidates of every walk."""
    tested = distribution_of([walk.row for walk in walks])
    log_norm = tested.log_norm()  # [W, 1]
    at_stake = [walk.token_ids_at_stake() for walk in walks]
    width = max(map(len, at_stake))
    padded = [ids + [0] * (width - len(ids)) for ids in at_stake]
    token_ids = to_device(padded, torch.int64, log_norm.device)  # [W, C]
    target_probs = (tested.scores_at(token_ids) - log_norm).exp_().tolist()
    keys = keys_of([rows[walk.row] for walk in walks], Stream.ACCEPT, log_norm.device)
    noise = uniform(keys, max(len(walk.candidates) for walk in walks)).tolist()
    for index, walk in enumerate(walks):
        left = dict(zip(at_stake[index], target_probs[index], strict=False))
        walk.descend(left, noise[index], float(log_norm[index]))


def _sample_unrejected(distribution_of: DistributionOf, rows: Sequence[Row], row_ids: list[int]) -> dict[int, int]:
    """Tokens by row, straight from the target."""
    if not row_ids:
        return {}
    token_ids = pick_rows(distribution_of(row_ids), [rows[row] for row in row_ids], Stream.RECOVER).tolist()
    return dict(zip(row_ids, token_ids, strict=True))


def _sample_recovered(distribution_of: DistributionOf, rows: Sequence[Row], walks: Sequence[_Walk]) -> dict[int, int]:
    """Tokens by row, from the residual of each walk."""
    if not walks:
        return {}
    row_ids = [walk.row for walk in walks]
    residual = _residual(distribution_of(row_ids), [(walk.left or {}, walk.log_norm) for walk in walks])
    token_ids = pick_rows(residual, [rows[row] for row in row_ids], Stream.RECOVER).tolist()
    return dict(zip(row_ids, token_ids, strict=True))


def _residual(target: Distribution, residuals: Sequence[tuple[Mapping[int, float], float]]) -> Distribution:
    """What rejections leave of each of N rows: (probabilities of the tokens that lost some, log_norm of the row).

    Only those tokens differ from the target, so only they are written. The target where nothing is left.
    """
    scores = target.dense_scores()  # [N, V]
    device = scores.device
    entries = [
        (row, token_id, prob, log_norm)
        for row, (left, log_norm) in enumerate(residuals)
        for token_id, prob in left.items()
    ]
    entry_rows = to_device([entry[0] for entry in entries], torch.int64, device)  # [E]
    token_ids = to_device([entry[1] for entry in entries], torch.int64, device)
    probs = to_device([entry[2:] for entry in entries], torch.float64, device)  # [E, 2]
    target_scores = scores[entry_rows, token_ids]
    scores[entry_rows, token_ids] = (probs[:, 0].log() + probs[:, 1]).float()
    # Equal up to rounding and rejected all the same, once in millions of draws.
    is_empty = (scores.amax(-1) == -torch.inf)[entry_rows]
    scores[entry_rows[is_empty], token_ids[is_empty]] = target_scores[is_empty]
    ones = torch.ones((len(residuals), 1), dtype=torch.float64, device=device)
    return Distribution(BlockedLogits.of(scores), ones, cut=None)
