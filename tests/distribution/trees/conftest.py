"""Drafters of trees for the world of ../conftest.py."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from torch import Tensor

from pilotfish.speculation.sampling.noise import Stream, gumbel, row_keys
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution

SHAPES = {
    "pair": DraftTree((-1, -1)),
    "three_by_two": DraftTree((-1, -1, -1, 0, 0, 1, 2, 3)),
    "deep": DraftTree((-1, 0, -1, 0, 1, 3, 3)),
}
"""Two or three siblings, one to three levels, leaves at every depth."""

Siblings = Literal["one_hot", "without_replacement", "with_replacement", "mixed"]
"""one_hot: the drafter's favourites in order. mixed: first a guess by lookup, then draws with replacement."""

CPU = torch.device("cpu")
LAST_OF_PROMPT = 5


@dataclass
class TreeDrafter:
    """Fills a shape with siblings from a table of logits [V, V], each with what it was drawn from."""

    table: Tensor
    shape: DraftTree
    siblings: Siblings
    draft_stream: Stream = Stream.DRAFT
    _logits: list[list[float]] = field(init=False)
    _probs: dict[tuple[int, tuple[int, ...]], SparseDistribution] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._logits = self.table.tolist()

    def __call__(
        self, samplings: list[SamplingParams], positions: list[int], contexts: list[list[int]]
    ) -> list[tuple[list[int], list[SparseDistribution], DraftTree]]:
        # A row per sibling rank, so that draws with replacement are independent of each other.
        ranks = {"one_hot": 0, "without_replacement": 1}.get(self.siblings, 3)
        noise = [
            [self._noise(samplings, [position + level for position in positions], rank) for rank in range(ranks)]
            for level in range(self.shape.depth)
        ]
        ranked = self.table.topk(3).indices.tolist()
        return [self._draft(index, context, noise, ranked) for index, context in enumerate(contexts)]

    def _noise(self, samplings: list[SamplingParams], positions: list[int], rank: int) -> list[list[float]]:
        is_coupled = samplings[0].acceptance is AcceptanceMode.COUPLED
        stream = Stream.COUPLED if is_coupled else self.draft_stream
        seeds = [sampling.seed + (0 if is_coupled else 1000 * rank) for sampling in samplings]
        tokens = torch.arange(self.table.shape[0]).unsqueeze(0)
        return gumbel(row_keys(seeds, positions, stream, CPU), tokens).tolist()

    def _draft(
        self, index: int, context: list[int], noise: list[list[list[list[float]]]], ranked: list[list[int]]
    ) -> tuple[list[int], list[SparseDistribution], DraftTree]:
        token_ids, probs = [0] * len(self.shape), [SparseDistribution((), ())] * len(self.shape)
        for row, children in enumerate(self.shape.children):
            last = token_ids[row - 1] if row else (context[-1] if context else LAST_OF_PROMPT)
            level = len(self.shape.paths[row])
            drawn: list[int] = []
            for rank, node in enumerate(children):
                if self.siblings == "one_hot" or (self.siblings == "mixed" and rank == 0):
                    token_ids[node] = ranked[last][rank]
                    probs[node] = SparseDistribution((token_ids[node],), (1.0,))
                    continue
                is_without = self.siblings == "without_replacement"
                # Of one Gumbel vector the best, then the second best, ...: draws without replacement.
                numbers = noise[level][0 if is_without else rank][index]
                probs[node] = self._distribution(last, tuple(drawn) if is_without else ())
                scores = [logit + number for logit, number in zip(self._logits[last], numbers, strict=True)]
                token_ids[node] = max(probs[node].token_ids, key=scores.__getitem__)
                drawn.append(token_ids[node])
        return token_ids, probs, self.shape

    def _distribution(self, last: int, excluded: tuple[int, ...]) -> SparseDistribution:
        key = (last, excluded)
        if key not in self._probs:
            kept = [token_id for token_id in range(self.table.shape[1]) if token_id not in excluded]
            self._probs[key] = SparseDistribution(
                tuple(kept), tuple(self.table[last, kept].double().softmax(-1).tolist())
            )
        return self._probs[key]


@pytest.fixture
def trees() -> SimpleNamespace:
    """What the tests use of this file."""
    return SimpleNamespace(drafter=TreeDrafter, shapes=SHAPES)
