"""Gumbel-coupled sampling: the token is argmax_i(score_i + G_i), with G from the seed and the position.

Drafter and target share G, so they often pick the same token: Pr >= (1 - TV) / (1 + TV) (Daliri,
Musco, Suresh 2408.07978, section 3). The target's pick is the one emitted, so the output does not
depend on the drafter. With a stream of its own, the same pick is plain sampling.

Shapes: R rows, B blocks of BLOCK_SIZE tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.speculation.sampling.logits import Distribution
from pilotfish.speculation.sampling.noise import Stream, block_gumbel, gumbel, row_keys
from pilotfish.speculation.sampling.penalties import Row

_NUM_OPENED_BLOCKS = 12
"""Blocks opened at first; a row whose winner could be elsewhere opens as many as it takes."""
_NUM_RIVALS = 32
"""Likeliest tokens among which rows look for those that could win, or win beside the one that does."""


def pick(distribution: Distribution, keys: Tensor) -> Tensor:
    """int64 [R]: one sample per row, a function of the row and its key in keys [R, 1] alone.

    Equals the argmax over the whole vocabulary: a block is left closed only when its greatest
    logit plus its greatest noise is below a score already seen.
    """
    bounds = distribution.block_bounds() + block_gumbel(keys, distribution.blocks.num_blocks)  # [R, B]
    num_blocks = bounds.shape[1]
    end = min(_NUM_OPENED_BLOCKS, num_blocks)
    ranked = bounds.topk(min(end + 1, num_blocks))
    token_ids, best = _pick_in_blocks(distribution, keys, ranked.indices[:, :end])
    undecided = torch.arange(len(best), device=best.device)
    while end < num_blocks:
        undecided = undecided[ranked.values[:, -1] >= best[undecided]]
        if len(undecided) == 0:
            break
        end = min(2 * end, num_blocks)
        ranked = bounds[undecided].topk(min(end + 1, num_blocks))
        token_ids[undecided], best[undecided] = _pick_in_blocks(
            distribution.select(undecided.tolist()), keys[undecided], ranked.indices[:, :end]
        )
    return token_ids


def pick_rows(distribution: Distribution, rows: Sequence[Row], stream: Stream) -> Tensor:
    """int64 [R]: `pick` with each row's own seed and position."""
    return pick(distribution, keys_of(rows, stream, distribution.temperature.device))


def rank_rows(distribution: Distribution, rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Token ids and log-probabilities [R, C], at most width of each row, descending: those with the greatest noisy
    scores, whose probability stands for how far they are from each other (a softmax).

    The first is the pick among all tokens, or those that the distribution holds where these are the likeliest.
    """
    keys, blocks = keys_of(rows, Stream.COUPLED, distribution.temperature.device), distribution.blocks
    if blocks.token_ids is None:
        winner = pick(distribution, keys).unsqueeze(1)
        _, rivals = blocks.rank(min(max(width, _NUM_RIVALS), blocks.vocab_size))
        token_ids = torch.cat((winner, rivals), 1)
        scores = distribution.scores_at(token_ids) + gumbel(keys, token_ids)
        scores[:, 1:].masked_fill_(rivals == winner, -torch.inf)
    else:
        token_ids = blocks.token_ids
        scores = distribution.scores_of(blocks.logits, token_ids) + gumbel(keys, token_ids)
    log_probs, places = scores.log_softmax(-1).topk(min(width, scores.shape[1]))
    return token_ids.gather(1, places), log_probs


def keys_of(rows: Sequence[Row], stream: Stream, device: torch.device) -> Tensor:
    """int64 [R, 1]: the keys of the rows' random numbers in a stream.

    A draft's noise is its own. Drafts that were not looked at decide what is drafted ahead; if the next draft, which
    may be one of two for the same text, had their noise, whether it is used would depend on what it holds.
    """
    positions = [row.position for row in rows]
    if stream is Stream.DRAFT:
        positions = [(row.draft_start << 32) + row.position for row in rows]
    return row_keys([row.sampling.seed for row in rows], positions, stream, device)


def _pick_in_blocks(distribution: Distribution, keys: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The winner among the tokens of blocks [R, n], the lowest id among equals, and its score; both [R]."""
    token_ids, logits = distribution.blocks.open_blocks(blocks)
    scores = distribution.scores_of(logits, token_ids) + gumbel(keys, token_ids)
    best = scores.amax(-1, keepdim=True)
    winner = token_ids.masked_fill(scores < best, torch.iinfo(torch.int64).max).amin(-1)
    return winner, best.squeeze(1)
