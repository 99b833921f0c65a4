"""The FlashInfer backend against SDPA, over a stand-in for FlashInfer that does what its documentation says.

What it proves is that rows, keys, windows and padding are described as FlashInfer expects them; its kernels run in
tests/gpu, where they are installed.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from pilotfish.models.attention.paged import AttentionShape, SequenceSlice
from pilotfish.models.attention.sdpa import SdpaBackend
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.rows import StaticRows, num_values
from pilotfish.models.graphs.shapes import StepShape
from pilotfish.speculation.trees.tree import DraftTree

SHAPES = [
    AttentionShape(num_kv_heads=2, head_dim=8, scale=0.3),
    AttentionShape(num_kv_heads=2, head_dim=8, scale=0.3, sliding_window=10),
    AttentionShape(num_kv_heads=2, head_dim=8, scale=0.3, softcap=5.0),
]
SLICES = [SequenceSlice(0, 1, 40, [3, 7, 5]), SequenceSlice(1, 4, 15, [2, 9]), SequenceSlice(5, 3, 0, [4])]


class FakeWrapper:
    """BatchPrefillWithPagedKVCacheWrapper of FlashInfer 0.7 in plain torch, for one page table and causal rows."""

    def __init__(self, workspace: Tensor, kv_layout: str, *, backend: str, **buffers: Any) -> None:
        assert (kv_layout, backend) == ("NHD", "fa2")
        self._uses_graph = buffers.pop("use_cuda_graph", False)
        self._buffers = buffers

    def plan(self, qo: Tensor, kv: Tensor, indices: Tensor, last: Tensor, *sizes: int, **options: Any) -> None:
        assert all(tensor.dtype is torch.int32 and tensor.device.type == "cpu" for tensor in (qo, kv, indices, last))
        assert len(indices) == kv[-1]
        if self._uses_graph:
            assert len(self._buffers["qo_indptr_buf"]) == len(qo)
            assert len(indices) <= len(self._buffers["paged_kv_indices_buf"])
        self._plan = (qo.tolist(), kv.tolist(), indices.long(), last.tolist())
        self._sizes, self._options = sizes, options

    def run(self, query: Tensor, pages: tuple[Tensor, Tensor]) -> Tensor:
        qo, kv, indices, last = self._plan
        num_heads, num_kv_heads, head_dim, page_size = self._sizes
        assert query.shape == (qo[-1], num_heads, head_dim)
        assert query.is_contiguous()
        assert pages[0].stride() == pages[1].stride()
        assert pages[0].shape[1:] == (page_size, num_kv_heads, head_dim)
        outputs = []
        for sequence in range(len(last)):
            ids = indices[kv[sequence] : kv[sequence + 1]]
            length = (len(ids) - 1) * page_size + last[sequence]
            key, value = (
                page[ids].flatten(0, 1)[:length].repeat_interleave(num_heads // num_kv_heads, 1) for page in pages
            )
            rows = query[qo[sequence] : qo[sequence + 1]]
            scores = torch.einsum("qhd,khd->hqk", rows, key) * self._options["sm_scale"]
            if cap := self._options["logits_soft_cap"]:
                scores = cap * torch.tanh(scores / cap)
            at = torch.arange(length - len(rows), length)[:, None]
            behind = at - torch.arange(length)
            window = self._options["window_left"]
            seen = (behind >= 0) & (behind <= (math.inf if window < 0 else window))
            outputs.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -math.inf).softmax(-1), value))
        return torch.cat(outputs)


@pytest.fixture
def flashinfer_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The backend over the stand-in."""
    fake = ModuleType("flashinfer")
    fake.BatchPrefillWithPagedKVCacheWrapper = FakeWrapper  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    monkeypatch.delitem(sys.modules, "pilotfish.models.attention.flashinfer", raising=False)
    module = importlib.import_module("pilotfish.models.attention.flashinfer")
    monkeypatch.setattr(module, "WORKSPACE_BYTES", 64)
    yield module.FlashInferBackend(torch.device("cpu"), 64)
    sys.modules.pop("pilotfish.models.attention.flashinfer", None)


def tensors(num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, new keys and values, and a pool of 12 blocks."""
    generator = torch.Generator().manual_seed(3)
    return (
        torch.randn(num_rows, 4, 8, generator=generator),
        torch.randn(num_rows, 4, 8, generator=generator),
        torch.randn(12 * 16, 4, 8, generator=generator),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_equals_sdpa(flashinfer_backend: Any, shape: AttentionShape) -> None:
    query, key_value, pool = tensors(10)  # two rows of padding
    results = []
    for backend in (flashinfer_backend, SdpaBackend(deterministic=False)):
        batch, own_pool = backend.prepare(SLICES, 10), pool.clone()
        batch.write_kv(own_pool, key_value)
        results.append((batch.attend(query, own_pool, shape), own_pool[16:]))
    (ours, our_pool), (theirs, their_pool) = results
    assert torch.equal(our_pool, their_pool)
    assert (ours[:8] - theirs[:8]).abs().max() < 1e-5
    assert not ours[8:].any()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_static_step_equals_sdpa_and_is_planned_anew(flashinfer_backend: Any, shape: AttentionShape) -> None:
    rows = StaticRows.of(StepShape(4, 4, 0), torch.zeros(num_values(StepShape(4, 4, 0)), dtype=torch.int64))
    static = flashinfer_backend.static(rows)
    sdpa = SdpaBackend(deterministic=False)
    for slices in (SLICES[2:], SLICES):  # the first makes the kernels, the second plans them
        num_rows = sum(part.num_rows for part in slices)
        first = slices[0].first_row
        moved = [SequenceSlice(p.first_row - first, p.num_rows, p.first_position, p.block_ids) for p in slices]
        positions = [place for part in moved for place in part.positions()]
        step = StepInput([0] * num_rows, positions, moved, range(num_rows))
        query, key_value, pool = tensors(num_rows)
        rows.fill(step)
        static.plan(moved)
        static.begin()
        index = rows.row_of(step)
        wide_query, wide_values = torch.zeros(16, 4, 8), torch.zeros(16, 4, 8)
        wide_query[index], wide_values[index] = query, key_value
        own_pool = pool.clone()
        static.write_kv(own_pool, wide_values)
        ours = static.attend(wide_query, own_pool, shape)
        batch = sdpa.prepare(moved, num_rows)
        batch.write_kv(pool, key_value)
        assert (ours[index] - batch.attend(query, pool, shape)).abs().max() < 1e-5
        assert ours.isfinite().all()


def test_keys_that_must_not_be_seen_are_refused_rather_than_shown(flashinfer_backend: Any) -> None:
    query, _, pool = tensors(8)
    shape = AttentionShape(num_kv_heads=2, head_dim=8, scale=0.3, first_key=1)
    with pytest.raises(AssertionError, match="heads do"):
        flashinfer_backend.prepare(SLICES, 8).attend(query, pool, shape)


def test_what_a_recorded_shape_keeps_is_counted(flashinfer_backend: Any) -> None:
    """64 tokens of context are 4 blocks, and 4 to round up; numbers of 4 bytes beside FlashInfer's own 8 MiB."""
    numbers = 3 * (4 + 4) + (3 + 1) + (3 + 1) + 3
    assert flashinfer_backend.static_bytes(StepShape(3, 2, 0), 2) == 2 * ((8 << 20) + 4 * numbers)
    assert flashinfer_backend.static_bytes(StepShape(3, 2, 5), 2) == 0, "trees are SDPA's"


def test_trees_go_to_sdpa(flashinfer_backend: Any) -> None:
    part = SequenceSlice(0, 3, 20, [3, 7], DraftTree((-1, -1)))
    assert flashinfer_backend.gathers([part])
    assert not flashinfer_backend.gathers([SequenceSlice(0, 3, 20, [3, 7], DraftTree.chain(2))])
    query, key_value, pool = tensors(3)
    batch = flashinfer_backend.prepare([part], 3)
    batch.write_kv(pool, key_value)
    expected = SdpaBackend(deterministic=False).prepare([part], 3).attend(query, pool, SHAPES[0])
    assert torch.equal(batch.attend(query, pool, SHAPES[0]), expected)
