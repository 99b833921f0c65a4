"""Finds out whether a decoder's logits depend on how tokens are cut into steps, by trying.

What is bit-exact differs between processors and library versions, so the actual machine is asked
at start-up. A pass is evidence over a few hundred thousand logits, not a proof.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import BLOCK_SIZE

_NUM_TOKENS = 48
_CUTS: tuple[tuple[int, ...], ...] = ((1,) * 8 + (40,), (5, 8, 33, 2), (17, 31))
_MIDDLE, _LONG = 304, 530
"""Context lengths of two neighbours: beyond 496 keys SDPA was seen to sum otherwise than below."""
_ROOT = 30
"""Position of a tree's root: its nodes begin at the last place of a block."""
_SEED = 20408


def is_batch_invariant(decoder: Decoder) -> bool:
    """Whether all tried cuts, blocks, neighbours and a tree give bit-identical logits. Writes to the decoder's pool."""
    generator = torch.Generator().manual_seed(_SEED)
    # Positions beyond the context are none that the decoder has to know.
    num_tokens = min(_NUM_TOKENS, decoder.max_context_tokens)
    tokens = torch.randint(0, decoder.vocab_size, (num_tokens,), generator=generator).tolist()
    width = -(-_NUM_TOKENS // BLOCK_SIZE)
    reference = _run(decoder, tokens, (num_tokens,), list(range(1, width + 1)))
    other_blocks = [width + 2 + 2 * index for index in range(width)][::-1]
    if any(not torch.equal(_run(decoder, tokens, cuts, other_blocks), reference) for cuts in _CUTS):
        return False
    if not torch.equal(_last_with_neighbour(decoder, tokens, other_blocks), reference[-1]):
        return False
    if num_tokens > _ROOT + 4 and not torch.equal(
        _path_of_a_tree(decoder, tokens, other_blocks), reference[_ROOT + 1 : _ROOT + 4]
    ):
        return False
    return _is_blind_to_long_neighbours(decoder, generator)


def blocks_needed() -> int:
    """Blocks of the pool that is_batch_invariant uses, block 0 included."""
    return max(4 * -(-_NUM_TOKENS // BLOCK_SIZE) + 3, 1 + sum(-(-size // BLOCK_SIZE) for size in (_MIDDLE, _LONG)))


def _run(decoder: Decoder, tokens: Sequence[int], cuts: Sequence[int], blocks: Sequence[int]) -> Tensor:
    """Logits of every token [len(tokens), V], computed in steps of the given sizes, as far as the tokens go."""
    logits, start = [], 0
    for cut in cuts:
        size = min(cut, len(tokens) - start)
        if size == 0:
            break
        piece = SequenceSlice(0, size, start, blocks)
        step = StepInput(tokens[start : start + size], range(start, start + size), [piece], range(size))
        logits.append(decoder.forward(step).clone())
        start += size
    return torch.cat(logits)


def _last_with_neighbour(decoder: Decoder, tokens: Sequence[int], blocks: Sequence[int]) -> Tensor:
    """Logits of the last token [V], decoded beside another sequence's prefill."""
    last, size = len(tokens) - 1, min(20, len(tokens))
    width = len(blocks)
    neighbour = SequenceSlice(0, size, 0, range(3 * width + 3, 4 * width + 3))
    step = StepInput(
        [*tokens[:size], tokens[last]],
        [*range(size), last],
        [neighbour, SequenceSlice(size, 1, last, blocks)],
        [size],
    )
    return decoder.forward(step)[0]


def _path_of_a_tree(decoder: Decoder, tokens: Sequence[int], blocks: Sequence[int]) -> Tensor:
    """Logits [3, V] of the three tokens after _ROOT, nodes of a tree in which another token lies before each.

    The tokens up to the root are in the blocks; what follows is overwritten.
    """
    path = tokens[_ROOT + 1 : _ROOT + 4]
    rows = [tokens[_ROOT], *(token_id for right in path for token_id in (tokens[0], right))]
    part = SequenceSlice(0, len(rows), _ROOT, blocks, DraftTree((-1, -1, 1, 1, 3, 3)))
    return decoder.forward(StepInput(rows, part.positions(), [part], [2, 4, 6]))


def _is_blind_to_long_neighbours(decoder: Decoder, generator: torch.Generator) -> bool:
    """Whether the last tokens of two long sequences have the same logits decoded alone and together."""
    if decoder.max_context_tokens < _LONG:
        return True
    steps, start = [], 1
    for size in (_MIDDLE, _LONG):
        blocks = range(start, start + -(-size // BLOCK_SIZE))
        start = blocks.stop
        tokens = torch.randint(0, decoder.vocab_size, (size,), generator=generator).tolist()
        decoder.forward(StepInput(tokens, range(size), [SequenceSlice(0, size, 0, blocks)], [size - 1]))
        steps.append(StepInput(tokens[-1:], [size - 1], [SequenceSlice(0, 1, size - 1, blocks)], [0]))
    alone = torch.cat([decoder.forward(step).clone() for step in steps])
    slices = [SequenceSlice(row, 1, step.positions[0], step.slices[0].block_ids) for row, step in enumerate(steps)]
    together = StepInput(
        [step.token_ids[0] for step in steps], [step.positions[0] for step in steps], slices, range(len(steps))
    )
    return torch.equal(decoder.forward(together), alone)
