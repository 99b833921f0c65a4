"""Attention over rows on the device equals SDPA's: chains, trees, windows, heads' first keys, padding, shared keys."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from pilotfish.models.attention.paged import AttentionShape, SequenceSlice
from pilotfish.models.attention.rows import StepRows, StepShape, laid_out
from pilotfish.models.attention.sdpa import SdpaBatch
from pilotfish.models.decoder import StepInput
from pilotfish.speculation.trees.tree import DraftTree
from tests.support.row_attention import ReferenceBatch
from tests.support.triton_interpreter import needs_interpreter

TREE = DraftTree((-1, -1, 0, 2, 1))
SLICES = {
    "decodes": [SequenceSlice(0, 1, 20, [3, 7]), SequenceSlice(1, 1, 0, [4])],
    "chains": [SequenceSlice(0, 6, 200, list(range(1, 15))), SequenceSlice(6, 2, 30, [17, 19])],
    "trees": [SequenceSlice(0, 6, 20, [3, 7], TREE), SequenceSlice(6, 3, 40, [8, 1, 2, 9], DraftTree.chain(2))],
    "a tree's last level": [SequenceSlice(0, 2, 24, [3, 7], TREE)],
    "a long text among short ones": [
        SequenceSlice(0, 1, 500, list(range(1, 33))),
        *(SequenceSlice(1 + index, 1, 20, [33, 34]) for index in range(3)),
    ],
    "prefill beside decodes": [
        SequenceSlice(0, 1, 300, list(range(21, 40))),
        SequenceSlice(1, 130, 5, list(range(1, 11))),
    ],
}
SHAPES = {
    "plain": AttentionShape(2, 16, 0.25),
    "window": AttentionShape(2, 16, 0.25, sliding_window=64),
    "softcap": AttentionShape(2, 16, 0.25, softcap=2.0),
    "a head's": AttentionShape(2, 16, 0.25, first_key=1),
    "odd sizes": AttentionShape(1, 24, 0.3),
}


@pytest.fixture(params=["reference", pytest.param("kernels", marks=needs_interpreter)])
def row_attention(request: pytest.FixtureRequest) -> Any:
    if request.param == "reference":
        return ReferenceBatch
    from pilotfish.models.attention.kernels import KernelBatch

    return KernelBatch


def step_of(slices: Sequence[SequenceSlice]) -> StepInput:
    positions = [position for part in slices for position in part.positions()]
    return StepInput([5] * len(positions), positions, slices, range(len(positions)))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", SLICES)
def test_rows_equal_sdpa(row_attention: Any, name: str, kind: str, padded: bool) -> None:
    step, shape = step_of(SLICES[name]), SHAPES[kind]
    num_rows, heads = len(step.token_ids), 3 * shape.num_kv_heads
    size = num_rows + 5 if padded else num_rows
    torch.manual_seed(3)
    pool = torch.randn(40 * 16, 2 * shape.num_kv_heads, shape.head_dim)
    query = torch.randn(size, heads, shape.head_dim)
    key, value = torch.randn(2, size, shape.num_kv_heads, shape.head_dim)
    if padded:
        made = StepShape.recorded(size, 4, shape.num_kv_heads)
        rows = StepRows.of(made, torch.zeros(made.num_fixed_values + 64, dtype=torch.int64))
        rows.fill(laid_out(step, made))
    else:
        rows = StepRows.holding(step, shape.num_kv_heads, torch.device("cpu"))
    ours, theirs = pool.clone(), pool.clone()
    batch, other = row_attention(rows), SdpaBatch(step.slices, num_rows, False)
    batch.write_kv(ours, key, value)
    other.write_kv(theirs, key[:num_rows], value[:num_rows])
    assert torch.equal(ours[16:], theirs[16:])
    output = batch.attend(query, ours, shape)
    assert (output[:num_rows] - other.attend(query[:num_rows], theirs, shape)).abs().max() < 1e-5
    assert not output[num_rows:].any()


def test_a_long_text_among_many_has_a_share_of_the_programs_by_its_keys() -> None:
    """131,072 keys among 63 sequences of 300: nearly as many programs read them as the GPU takes at once."""
    lengths = [300] * 63 + [131_072]
    slices = [SequenceSlice(row, 1, length - 1, range(1, -(-length // 16) + 1)) for row, length in enumerate(lengths)]
    rows = StepRows.holding(step_of(slices), 8, torch.device("cpu"))
    assert rows.shares.tolist() == [1] * 63 + [28]
    assert rows.pieces[:63, [0, 1, 4, 5]].tolist() == [[row, 1, 0, 1] for row in range(63)]
    assert rows.pieces[63 : 63 + 28, [0, 1, 4, 5]].tolist() == [[63, 1, share, 28] for share in range(28)]
    assert not rows.pieces[63 + 28 :].any()
    assert int(rows.counts) == 64


def test_equal_texts_share_the_programs_equally() -> None:
    slices = [SequenceSlice(row, 1, 4095, range(1, 257)) for row in range(4)]
    rows = StepRows.holding(step_of(slices), 8, torch.device("cpu"))
    assert rows.shares.tolist() == [264 // (4 * 8)] * 4
