"""Rejection sampling with sparse draft distributions (Leviathan et al. 2211.17192, algorithm 1;
Chen et al. 2302.01318, algorithm 2).

A draft x is accepted when u < target(x) / draft(x). At the first rejection the recovered token
comes from norm(max(0, target - draft)); when all are accepted, the bonus comes from the target.
Accepting and resampling use random numbers of their own (`noise.Stream`): shared noise biases the
output (vLLM #54282).

Shapes: R rows, V vocabulary, D drafts under test, N rejected drafts, E (rejected draft, candidate) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.speculation.blocks import BlockedLogits
from pilotfish.speculation.coupling import keys_of, pick_rows
from pilotfish.speculation.logits import Distribution
from pilotfish.speculation.noise import Stream, uniform
from pilotfish.speculation.penalties import Row
from pilotfish.types import SparseDistribution


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """The drafts of one sequence; its K + 1 rows start at first_row."""

    first_row: int
    draft_token_ids: Sequence[int]
    draft_probs: Sequence[SparseDistribution]


@dataclass(frozen=True, slots=True)
class _Test:
    """One draft against the row that decides its position."""

    row: int
    token_id: int
    probs: SparseDistribution
    prob: float


def decide(distribution: Distribution, rows: Sequence[Row], blocks: Sequence[DraftBlock]) -> list[tuple[int, int]]:
    """Per block: accepted drafts, and the recovered, bonus or plain token that follows them.

    A draft that its own distribution does not hold ends its block early, as if never proposed.
    Raises ValueError when a block has not one distribution per draft.
    """
    tests = [test for block in blocks for test in _tests_of(block)]
    is_accepted, log_norm = _run(tests, distribution, rows)
    following = []
    for block in blocks:
        row = block.first_row
        while is_accepted.get(row, False):
            row += 1
        following.append(row)
    # A row that follows and was tested has failed its test; any other holds a bonus or plain token.
    deciding = set(following)
    rejected = [index for index, test in enumerate(tests) if test.row in deciding]
    token_ids = _sample_unrejected(distribution, rows, [row for row in following if row not in is_accepted])
    if rejected:
        token_ids |= _sample_recovered(distribution, rows, [tests[index] for index in rejected], log_norm[rejected])
    return [(row - block.first_row, token_ids[row]) for row, block in zip(following, blocks, strict=True)]


def _tests_of(block: DraftBlock) -> Iterator[_Test]:
    for offset, (token_id, probs) in enumerate(zip(block.draft_token_ids, block.draft_probs, strict=True)):
        prob = next((prob for held, prob in zip(probs.token_ids, probs.probs, strict=True) if held == token_id), 0.0)
        if not prob > 0:
            return
        yield _Test(block.first_row + offset, token_id, probs, prob)


def _run(tests: list[_Test], distribution: Distribution, rows: Sequence[Row]) -> tuple[dict[int, bool], Tensor]:
    """Whether each tested row accepts its draft, and log_norm [D, 1] of the tested rows."""
    device = distribution.temperature.device
    if not tests:
        return {}, torch.empty((0, 1), dtype=torch.float64, device=device)
    tested = distribution.select([test.row for test in tests])
    log_norm = tested.log_norm()
    token_ids = torch.tensor([[test.token_id] for test in tests], device=device)
    target_probs = (tested.scores_at(token_ids) - log_norm).exp_()  # [D, 1]
    draft_probs = torch.tensor([[test.prob] for test in tests], dtype=torch.float64, device=device)
    noise = uniform(keys_of([rows[test.row] for test in tests], Stream.ACCEPT, device))
    accepts = (noise * draft_probs < target_probs).squeeze(1).tolist()
    return {test.row: accepted for test, accepted in zip(tests, accepts, strict=True)}, log_norm


def _sample_unrejected(distribution: Distribution, rows: Sequence[Row], row_ids: list[int]) -> dict[int, int]:
    """Tokens by row, straight from the target."""
    if not row_ids:
        return {}
    chosen = distribution.select(row_ids)
    token_ids = pick_rows(chosen, [rows[row] for row in row_ids], Stream.RECOVER).tolist()
    return dict(zip(row_ids, token_ids, strict=True))


def _sample_recovered(
    distribution: Distribution, rows: Sequence[Row], rejected: list[_Test], log_norm: Tensor
) -> dict[int, int]:
    """Tokens by row, from the residual; log_norm: [N, 1]."""
    row_ids = [test.row for test in rejected]
    residual = _residual(distribution.select(row_ids), [test.probs for test in rejected], log_norm)
    token_ids = pick_rows(residual, [rows[row] for row in row_ids], Stream.RECOVER).tolist()
    return dict(zip(row_ids, token_ids, strict=True))


def _residual(target: Distribution, drafts: Sequence[SparseDistribution], log_norm: Tensor) -> Distribution:
    """norm(max(0, target - draft)) for each of N rows; the target where nothing is left of it.

    Only the draft's candidates differ from the target, so only they are written.
    """
    device = log_norm.device
    scores = target.dense_scores()  # [N, V]
    sizes = torch.tensor([len(draft.token_ids) for draft in drafts], device=device)
    entry_rows = torch.arange(len(drafts), device=device).repeat_interleave(sizes)  # [E]
    token_ids = torch.tensor([token_id for draft in drafts for token_id in draft.token_ids], device=device)
    draft_probs = torch.tensor([prob for draft in drafts for prob in draft.probs], dtype=torch.float64, device=device)
    target_scores = scores[entry_rows, token_ids]
    target_probs = (target_scores.double() - log_norm[entry_rows, 0]).exp_()
    # log(target - draft) without cancellation. NaN (0 / 0, negative logs) is a residual of 0.
    left = target_scores + torch.log1p(-draft_probs / target_probs)
    scores[entry_rows, token_ids] = left.nan_to_num(nan=-torch.inf, neginf=-torch.inf).float()
    # Equal up to rounding and rejected all the same, once in millions of draws.
    is_empty = (scores.amax(-1) == -torch.inf)[entry_rows]
    scores[entry_rows[is_empty], token_ids[is_empty]] = target_scores[is_empty]
    return Distribution(BlockedLogits.of(scores), torch.ones_like(log_norm), cut=None)
