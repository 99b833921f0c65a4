"""Turns logits into the distribution that is sampled: the same code for drafter and target.

Order: penalties, logit bias, temperature, top-k, top-p, min-p. Nothing of the size of the
vocabulary is made for a row whose parameters do not ask for it: temperature and cut stay beside
the logits and are applied to the tokens that are looked at.

Shapes: R rows, V vocabulary, C tokens per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.speculation.sampling.blocks import BlockedLogits, block_sums
from pilotfish.speculation.sampling.penalties import Row, adjust
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.sampling.truncation import Cut, find_cut

_MIN_TEMPERATURE = 1e-30
"""Divides any difference of logits without leaving float32's range of exponents for NaN."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Rows of post-processed distributions. A score is a log-probability up to a constant per row.

    The greatest score of a row is 0, so a small temperature cannot overflow.
    """

    blocks: BlockedLogits
    temperature: Tensor  # [R, 1] float64, above 0
    cut: Cut | None

    def scores_of(self, logits: Tensor, token_ids: Tensor) -> Tensor:
        """float64 [R, C]: scores of tokens whose logits are at hand; -inf for what is cut."""
        scores = (logits.double() - self.blocks.max()) / self.temperature
        return scores if self.cut is None else scores.masked_fill_(~self.cut.keeps(logits, token_ids), -torch.inf)

    def scores_at(self, token_ids: Tensor) -> Tensor:
        """float64 [R, C]: scores of token_ids [R, C]."""
        return self.scores_of(self.blocks.logits.gather(1, token_ids), token_ids)

    def block_bounds(self) -> Tensor:
        """float64 [R, B]: no score in the block is greater; -inf when all of it is cut."""
        bounds = (self.blocks.block_max.double() - self.blocks.max()) / self.temperature
        return bounds if self.cut is None else bounds.masked_fill_(self.blocks.block_max < self.cut.logit, -torch.inf)

    def dense_scores(self) -> Tensor:
        """float32 [R, V]: all scores. For the few rows that need them."""
        logits = self.blocks.logits
        scores = (logits - self.blocks.max()).div_(self.temperature.float())
        if self.cut is not None:
            token_ids = self.blocks.token_ids
            if token_ids is None:
                token_ids = torch.arange(self.blocks.vocab_size, device=logits.device)
            scores.masked_fill_(~self.cut.keeps(logits, token_ids), -torch.inf)
        return scores

    def log_norm(self) -> Tensor:
        """float64 [R, 1]: log of the sum of exp(score); score - log_norm is the log-probability."""
        return block_sums(self.dense_scores().exp_()).log_()

    def select(self, rows: list[int]) -> Distribution:
        """The rows, in this order."""
        if rows == list(range(self.blocks.num_rows)):
            return self
        index = to_device(rows, torch.int64, self.temperature.device)
        cut = None if self.cut is None else self.cut.select(index)
        return Distribution(self.blocks.select(rows), self.temperature[index], cut)


def process(blocks: BlockedLogits, rows: Sequence[Row]) -> Distribution:
    """The post-processed distributions of rows with temperatures above 0.

    Raises ValueError for a row with penalties and no history.
    """
    blocks = adjust(blocks, rows)
    samplings = [row.sampling for row in rows]
    temperatures = [max(sampling.temperature, _MIN_TEMPERATURE) for sampling in samplings]
    temperature = to_device(temperatures, torch.float64, blocks.logits.device).unsqueeze(1)
    return Distribution(blocks, temperature, find_cut(blocks, samplings, temperature))
