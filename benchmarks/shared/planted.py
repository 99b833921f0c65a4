"""Planted agreement: models of random weights whose greedy text, and how often a drafter foresees it, is known.

The model's forward runs, so that its time is real. Then a few logits of each row are overwritten: on the device, in the
order of its queue, without waiting for it. What they say is a hash of the row's token and position, which the host has
anyway: it computes the token ids, and the device gets them in one small copy and writes them with one kernel.

The target's next token is one such hash. A drafter ranks `NUM_CANDIDATES` tokens: with probability `acceptance` the
target's is its first; else it is the second in half of the cases, the third in half of the others and so on, as
`pilotfish plan` assumes. So it has the probabilities that it gives them.

Legend: R rows whose logits are wanted, V vocabulary, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pilotfish.models.decoder import StepInput
from pilotfish.speculation.sampling.transfer import moved
from pilotfish.speculation.trees.fan_out import MAX_RIVALS

NUM_CANDIDATES = 1 + MAX_RIVALS
FIRST_TOKEN_ID = 256
"""Smaller ids are never said: special tokens and bytes."""
MAX_TOKEN_ID = 32_000
"""The draft vocabulary of a head: tokens beyond it are never said either."""
_HIGH = 28.0
"""A random logit is below 10, and all of a vocabulary together weigh less than e^13."""
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _mixed(numbers: np.ndarray, salt: int) -> np.ndarray:
    """uint64 [R], each bit of which depends on all of a number (splitmix64)."""
    mixed = numbers + np.full(1, salt, dtype=np.uint64) * _FACTORS[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FACTORS[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _FACTORS[2]
    return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True)
class Planting:
    """What target and drafter say. The same in every process."""

    vocab_size: int
    acceptance: float

    @property
    def num_tokens(self) -> int:
        """Tokens that are ever said."""
        return min(self.vocab_size, MAX_TOKEN_ID) - FIRST_TOKEN_ID

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each of a drafter's candidates. [C]"""
        rest = [(1 - self.acceptance) * 0.5**rank for rank in range(1, NUM_CANDIDATES)]
        return (self.acceptance, *rest)

    def said(self, token_ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """The target's next tokens, int64 [R, 1]."""
        draws = _mixed(_numbers(token_ids, positions), 1) % np.uint64(self.num_tokens)
        return FIRST_TOKEN_ID + draws.astype(np.int64)[:, None]

    def drafted(self, token_ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """The drafter's candidates, the likeliest first, int64 [R, C]."""
        truth = self.said(token_ids, positions)
        draws = _mixed(_numbers(token_ids, positions), 2).astype(np.float64) / 2.0**64
        ranks = np.searchsorted(np.cumsum(self.probabilities), draws, side="right")
        others = 1 + np.arange(NUM_CANDIDATES)
        candidates = FIRST_TOKEN_ID + (truth - FIRST_TOKEN_ID + others) % self.num_tokens
        return np.where(ranks[:, None] == np.arange(NUM_CANDIDATES), truth, candidates)


def _numbers(token_ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    tokens, places = np.asarray(token_ids, dtype=np.uint64), np.asarray(positions, dtype=np.uint64)
    return tokens * _FACTORS[2] + places * _FACTORS[0]


def plant(model: Any, planting: Planting, *, drafts: bool) -> None:
    """Have a Decoder, or a FeatureHead whose draft vocabulary begins with the same ids, say what is planted.

    Replaces its `forward`. drafts: what a drafter says, else what the target says.
    """
    forward: Callable[[StepInput], Any] = model.forward
    choose = planting.drafted if drafts else planting.said
    probabilities = planting.probabilities if drafts else (1.0,)
    values = _HIGH + np.log(np.maximum(probabilities, 1e-3))
    on_device: dict[torch.dtype, torch.Tensor] = {}

    @torch.inference_mode()
    def planted(step: StepInput) -> Any:
        output = forward(step)
        logits = output if isinstance(output, torch.Tensor) else output.logits
        rows = step.logit_rows
        if len(rows):
            chosen = choose([step.token_ids[row] for row in rows], [step.positions[row] for row in rows])
            if logits.dtype not in on_device:
                on_device[logits.dtype] = torch.tensor(values, dtype=logits.dtype, device=logits.device)
            index = moved(torch.from_numpy(chosen), logits.device)
            logits.scatter_(1, index, on_device[logits.dtype].expand(index.shape))
        return output

    model.forward = planted
