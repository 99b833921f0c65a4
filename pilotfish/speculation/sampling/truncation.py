"""Top-k, top-p and min-p as one cut per row.

Each of the three keeps a prefix of the tokens in order of descending logit, equals by ascending
id. So its last kept (logit, id) says what a row keeps: a cut. Ties are decided by id, never
by the sort at hand.

Shapes: R rows, N rows that a rule applies to, C ranked tokens.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.speculation.sampling.blocks import BlockedLogits, block_sums, greatest, order_keys, token_ids_of
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import SamplingParams

_NUCLEUS_GUESS = 64
"""Tokens ranked first for top-p; a nucleus that is larger costs a pass over its row."""

_NUM_SHRINKS = 2
"""Times that the candidates of a wide nucleus are narrowed before they are sorted."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The last kept token of each row in order of descending logit, then ascending id."""

    logit: Tensor  # [R, 1] float32
    token_id: Tensor  # [R, 1] int64

    def keeps(self, logits: Tensor, token_ids: Tensor) -> Tensor:
        """bool [R, C] for logits and ids [R, C]."""
        return (logits > self.logit) | ((logits == self.logit) & (token_ids <= self.token_id))

    def select(self, rows: Tensor) -> Cut:
        return Cut(self.logit[rows], self.token_id[rows])

    def _tighten_(self, rows: Tensor, logit: Tensor, token_id: Tensor) -> None:
        """Move the cut of rows [N] up to (logit, token_id) [N, 1] where that keeps less."""
        old_logit, old_token_id = self.logit[rows], self.token_id[rows]
        tighter_id = torch.minimum(old_token_id, token_id)
        new_id = torch.where(logit == old_logit, tighter_id, torch.where(logit > old_logit, token_id, old_token_id))
        self.logit[rows] = torch.maximum(old_logit, logit)
        self.token_id[rows] = new_id


def find_cut(blocks: BlockedLogits, samplings: Sequence[SamplingParams], temperature: Tensor) -> Cut | None:
    """The cut of each row; None when no row is truncated. temperature: float64 [R, 1], above 0."""
    vocab_size, device = blocks.vocab_size, blocks.logits.device
    by_k = [i for i, s in enumerate(samplings) if 0 < s.top_k < vocab_size]
    by_p = [i for i, s in enumerate(samplings) if s.top_p < 1 and not 0 < s.top_k < vocab_size]
    by_min_p = [i for i, s in enumerate(samplings) if s.min_p > 0]
    if not (by_k or by_p or by_min_p):
        return None
    cut = Cut(
        torch.full((blocks.num_rows, 1), -torch.inf, device=device),
        torch.full((blocks.num_rows, 1), vocab_size, dtype=torch.int64, device=device),
    )
    by_size = ((rows, _find_top_k) for rows in _by_size(by_k, samplings))
    for rows, find in (*by_size, (by_p, _find_top_p), (by_min_p, _find_min_p)):
        if rows:
            index = to_device(rows, torch.int64, device)
            found = find(blocks.select(rows), [samplings[row] for row in rows], temperature[index])
            cut._tighten_(index, *found)
    return cut


def _by_size(rows: Iterable[int], samplings: Sequence[SamplingParams]) -> Iterable[list[int]]:
    """Rows with those of a top-k of about the same size: a large one ranks most of a vocabulary, for itself alone."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        groups[samplings[row].top_k.bit_length()].append(row)
    return groups.values()


def relative_mass(blocks: BlockedLogits, temperature: Tensor) -> Tensor:
    """float32 [R, V]: exp((logit - greatest logit) / temperature), probabilities up to a constant per row."""
    return (blocks.logits - blocks.max()).div_(temperature.float()).exp_()


def _find_top_k(
    blocks: BlockedLogits, samplings: Sequence[SamplingParams], temperature: Tensor
) -> tuple[Tensor, Tensor]:
    """Top-k, then top-p of what is left, renormalised."""
    top_k = to_device([s.top_k for s in samplings], torch.int64, temperature.device).unsqueeze(1)
    logits, token_ids = blocks.rank(max(s.top_k for s in samplings))
    beyond = torch.arange(logits.shape[1], device=logits.device) >= top_k
    mass = ((logits.double() - blocks.max()) / temperature).exp_().masked_fill_(beyond, 0.0)
    # A running sum: the zeros that another row's larger k adds cannot change how it rounds.
    total = mass.cumsum(-1)[:, -1:]
    num_kept = torch.minimum(_nucleus_size(mass, total, _top_p(samplings, mass)), top_k)
    return logits.gather(1, num_kept - 1), token_ids.gather(1, num_kept - 1)


def _find_top_p(
    blocks: BlockedLogits, samplings: Sequence[SamplingParams], temperature: Tensor
) -> tuple[Tensor, Tensor]:
    mass = relative_mass(blocks, temperature)  # [N, V]
    total = block_sums(mass)
    logits, token_ids = blocks.rank(_NUCLEUS_GUESS)
    ranked_mass = ((logits.double() - blocks.max()) / temperature).exp_()
    num_kept = _nucleus_size(ranked_mass, total, _top_p(samplings, total))
    cut_logits, cut_token_ids = logits.gather(1, num_kept - 1), token_ids.gather(1, num_kept - 1)
    if logits.shape[1] < blocks.vocab_size:
        # All ranked tokens kept, so more may follow.
        for row in (num_kept == logits.shape[1]).squeeze(1).nonzero().squeeze(1).tolist():
            last = _find_wide_nucleus(blocks.logits[row], mass[row], float(total[row]), samplings[row].top_p)
            cut_logits[row], cut_token_ids[row] = last
    return cut_logits, cut_token_ids


def _find_wide_nucleus(logits: Tensor, mass: Tensor, total: float, top_p: float) -> tuple[Tensor, Tensor]:
    """The last logit and id of one row's nucleus; logits, mass: [V]. Sorts little more than the nucleus."""
    droppable = (1 - top_p) * total
    # n tokens of at most droppable / n each cannot hold more than that together.
    token_ids = (mass >= droppable / mass.numel()).nonzero().squeeze(1)
    for _ in range(_NUM_SHRINKS):
        held = mass[token_ids]
        left = droppable - (total - float(held.sum(dtype=torch.float64)))
        token_ids = token_ids[held >= left / held.numel()]
    keys = order_keys(logits[token_ids], token_ids).unsqueeze(0)
    ranked = token_ids_of(greatest(keys, keys.shape[1]))  # [1, n]
    last = ranked[0, int(_nucleus_size(mass[ranked].double(), total, top_p)) - 1]
    return logits[last], last


def _find_min_p(
    blocks: BlockedLogits, samplings: Sequence[SamplingParams], temperature: Tensor
) -> tuple[Tensor, Tensor]:
    min_p = to_device([s.min_p for s in samplings], torch.float64, temperature.device).unsqueeze(1)
    bound = blocks.max() + temperature * min_p.log()
    return bound.float(), torch.full_like(bound, blocks.vocab_size, dtype=torch.int64)


def _top_p(samplings: Sequence[SamplingParams], like: Tensor) -> Tensor:
    # 1 keeps tokens that the sum of those before no longer leaves room for.
    values = [s.top_p if s.top_p < 1 else math.inf for s in samplings]
    return to_device(values, like.dtype, like.device).unsqueeze(1)


def _nucleus_size(mass: Tensor, total: Tensor | float, top_p: Tensor | float) -> Tensor:
    """int64 [R, 1]: how many of the ranked tokens it takes to reach top_p of the total; at least one."""
    before = mass.cumsum(-1) - mass
    return (before < top_p * total).sum(-1, keepdim=True).clamp_(min=1)
