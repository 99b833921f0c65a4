"""What a decoder must compute right before it serves: prompts in pieces, single tokens, two texts in one step, a tree
of drafts, all beyond the lengths at which a twin changes its ways.

Legend: T tokens of a text, R rows whose logits are wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.self_check.twin import NUM_TOKENS
from pilotfish.speculation.trees.tree import DraftTree

_PIECES = (
    ((0, 0, 19),),
    ((1, 0, 11), (0, 19, 20)),
    ((0, 20, 43), (1, 11, 12)),
    ((0, 43, 44),),
    ((0, 44, 45), (1, 12, 13)),
    ((1, 13, 24), (0, 45, 51)),
)
"""Steps of the check: which text's tokens, from where to where. The last token of text 0 is the root of the tree."""
LENGTHS, _BLOCKS = (52, 24), ((3, 1, 6, 4), (2, 5))
_TREE = DraftTree((-1, -1, 1, 1, 3))
NUM_BLOCKS = 7
"""KV blocks that the texts need."""

Forward = Callable[[Sequence[int]], Tensor]
"""Token ids [T] to logits [T, V]."""
Steps = Sequence[tuple[StepInput, Tensor]]
"""Steps in their order, each with the logits [R, V] that are right."""


@dataclass(frozen=True)
class _Text:
    token_ids: Sequence[int]
    blocks: Sequence[int]
    logits: Tensor
    """[T, V] that are right."""


def steps_of(own_logits: Forward, seed: int) -> Iterator[tuple[StepInput, Tensor]]:
    """Steps in their order, each with the logits [R, V] that are right."""
    generator = torch.Generator().manual_seed(seed)
    long, short, drafts = (
        torch.randint(0, NUM_TOKENS, (length,), generator=generator).tolist() for length in (*LENGTHS, len(_TREE))
    )
    paths = [[*long, *(drafts[node] for node in path)] for path in _TREE.paths]
    after_paths = torch.stack([own_logits(path)[-1] for path in paths])
    texts = [_Text(long, _BLOCKS[0], own_logits(long)), _Text(short, _BLOCKS[1], own_logits(short))]
    for pieces in _PIECES:
        yield _step([(texts[text], start, end) for text, start, end in pieces])
    root = len(long) - 1
    part = SequenceSlice(0, 1 + len(_TREE), root, _BLOCKS[0], _TREE)
    yield StepInput([long[root], *drafts], part.positions(), [part], range(len(paths))), after_paths


def _step(pieces: Sequence[tuple[_Text, int, int]]) -> tuple[StepInput, Tensor]:
    """The step of some texts' tokens from start to end; of more than one row the first one's logits are not wanted."""
    token_ids: list[int] = []
    positions: list[int] = []
    slices, right = [], []
    for text, start, end in pieces:
        slices.append(SequenceSlice(len(token_ids), end - start, start, text.blocks))
        token_ids += text.token_ids[start:end]
        positions += range(start, end)
        right.append(text.logits[start:end])
    wanted = range(min(1, len(token_ids) - 1), len(token_ids))
    return StepInput(token_ids, positions, slices, wanted), torch.cat(right)[wanted.start :]
