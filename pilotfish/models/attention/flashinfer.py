"""Paged attention on FlashInfer's kernels (https://github.com/flashinfer-ai/flashinfer), where they are installed.

The kernels follow block tables of any length, so a recorded step needs no shape for it, and nothing is gathered.
Drafts that are trees go to SDPA: FlashInfer takes their masks in bits over all keys, made anew for each step.

Legend: S sequences, T rows, H query heads, H_kv key/value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from flashinfer import BatchPrefillWithPagedKVCacheWrapper
from torch import Tensor

from pilotfish.models.attention.paged import AttentionBatch, AttentionShape, SequenceSlice, slot_mapping
from pilotfish.models.attention.sdpa import SdpaBackend
from pilotfish.models.graphs.attention import StaticAttention
from pilotfish.models.graphs.rows import StaticRows
from pilotfish.models.graphs.shapes import StepShape, num_key_blocks
from pilotfish.speculation.sampling.transfer import moved
from pilotfish.types import BLOCK_SIZE

WORKSPACE_BYTES = 256 << 20
"""Twice what FlashInfer recommends, for verifications of many rows. One for all layers and shapes: they take turns."""

PLAN_BYTES = 8 << 20
"""What each wrapper of FlashInfer takes for itself, on the device and as much on the host (_int_workspace_buffer)."""


@dataclass(frozen=True, slots=True)
class PagedLengths:
    """How FlashInfer is told where rows and keys of a step lie; int32, on the CPU."""

    first_rows: Tensor
    """[S + 1] and, last, the number of rows."""
    first_blocks: Tensor
    """[S + 1] as an index into block_ids."""
    block_ids: Tensor
    last_block_lengths: Tensor
    """[S] keys in each sequence's last block."""

    @classmethod
    def of(cls, slices: Sequence[SequenceSlice], rows_each: int | None = None, num_sequences: int = 0) -> PagedLengths:
        """Of slices in the order of their rows, without gaps.

        rows_each: each sequence is given so many rows and keys for them; num_sequences: as many sequences, the ones
        behind the slices over block 0.
        """
        rows, blocks = [0], [0]
        ids: list[int] = []
        lasts: list[int] = []
        padding = [SequenceSlice(0, 1, 0, (0,))] * (num_sequences - len(slices))
        for part in (*slices, *padding):
            num_rows = part.num_rows if rows_each is None else rows_each
            wide = SequenceSlice(part.first_row, num_rows, part.first_position, part.block_ids)
            num_blocks = num_key_blocks(wide)
            rows.append(rows[-1] + num_rows)
            blocks.append(blocks[-1] + num_blocks)
            ids.extend(part.block_ids[:num_blocks])
            ids.extend([0] * (num_blocks - len(part.block_ids)))
            lasts.append((part.first_position + num_rows - 1) % BLOCK_SIZE + 1)
        return cls(*(torch.tensor(values, dtype=torch.int32) for values in (rows, blocks, ids, lasts)))


class _Kernel:
    """One wrapper of FlashInfer and what it was last planned for."""

    def __init__(self, wrapper: BatchPrefillWithPagedKVCacheWrapper, num_heads: int, shape: AttentionShape) -> None:
        assert shape.first_key == 0, "models have no such keys; heads do, and run on SDPA"
        self._wrapper = wrapper
        self._num_heads = num_heads
        self._shape = shape

    def plan(self, lengths: PagedLengths, dtype: torch.dtype) -> None:
        shape = self._shape
        self._wrapper.plan(
            lengths.first_rows,
            lengths.first_blocks,
            lengths.block_ids,
            lengths.last_block_lengths,
            self._num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            BLOCK_SIZE,
            causal=True,
            sm_scale=shape.scale,
            # Keys before a row's own that it sees.
            window_left=-1 if shape.sliding_window is None else shape.sliding_window - 1,
            logits_soft_cap=shape.softcap,
            q_data_type=dtype,
            kv_data_type=dtype,
        )

    def run(self, query: Tensor, pool: Tensor) -> Tensor:
        """query [T, H, D] over the layer's pool; returns [T, H * D]."""
        blocks = pool.view(-1, BLOCK_SIZE, 2 * self._shape.num_kv_heads, self._shape.head_dim)
        key, value = blocks.chunk(2, dim=2)
        output: Tensor = self._wrapper.run(query.contiguous(), (key, value))
        return output.flatten(1)


class FlashInferBatch:
    """One step of any rows; see AttentionBatch."""

    def __init__(self, backend: FlashInferBackend, slices: Sequence[SequenceSlice], num_rows: int) -> None:
        self._backend = backend
        self._slices = sorted(slices, key=lambda part: part.first_row)
        self._num_rows = num_rows
        self._slots = slot_mapping(slices, num_rows)
        self._lengths = PagedLengths.of(self._slices)
        self._planned: dict[tuple[AttentionShape, int], _Kernel] = {}

    def write_kv(self, pool: Tensor, key_value: Tensor) -> None:
        if self._slots.device != pool.device:
            self._slots = moved(self._slots, pool.device)
        pool.index_copy_(0, self._slots, key_value)

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        kind = (shape, query.shape[1])
        kernel = self._planned.get(kind)
        if kernel is None:
            kernel = self._planned[kind] = self._backend.kernel(kind)
            kernel.plan(self._lengths, query.dtype)
        covered = int(self._lengths.first_rows[-1])
        output = kernel.run(query[:covered], pool)
        if covered == self._num_rows:
            return output
        return torch.cat((output, output.new_zeros(self._num_rows - covered, output.shape[1])))


class StaticFlashInfer:
    """A StaticAttention: kernels over buffers that stay, planned anew for each step by the host."""

    has_short_window = False
    """It never has a tree."""

    def __init__(self, rows: StaticRows, workspace: Tensor, max_block_ids: int) -> None:
        self._rows = rows
        self._workspace = workspace
        self._max_block_ids = max_block_ids
        self._lengths = PagedLengths.of((), rows.shape.rows_each, rows.shape.num_sequences)
        self._kernels: dict[tuple[AttentionShape, int], _Kernel] = {}
        self._dtype = torch.bfloat16

    def plan(self, slices: Sequence[SequenceSlice]) -> None:
        in_order = sorted(slices, key=lambda part: part.first_row)
        self._lengths = PagedLengths.of(in_order, self._rows.shape.rows_each, self._rows.shape.num_sequences)
        for kernel in self._kernels.values():
            kernel.plan(self._lengths, self._dtype)

    def begin(self) -> None:
        """Everything was planned."""

    def write_kv(self, pool: Tensor, key_value: Tensor) -> None:
        pool.index_copy_(0, self._rows.slots, key_value)

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        kind = (shape, query.shape[1])
        kernel = self._kernels.get(kind)
        if kernel is None:  # while warming up: recording finds all kinds of layers here
            self._dtype = query.dtype
            kernel = self._kernels[kind] = _Kernel(self._wrapper(query.device), query.shape[1], shape)
            kernel.plan(self._lengths, query.dtype)
        return kernel.run(query, pool)

    def _wrapper(self, device: torch.device) -> BatchPrefillWithPagedKVCacheWrapper:
        batch = self._rows.shape.num_sequences

        def buffer(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        return BatchPrefillWithPagedKVCacheWrapper(
            self._workspace,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=buffer(batch + 1),
            paged_kv_indptr_buf=buffer(batch + 1),
            paged_kv_indices_buf=buffer(batch * self._max_block_ids),
            paged_kv_last_page_len_buf=buffer(batch),
            backend="fa2",
        )


class FlashInferBackend:
    """Attention on FlashInfer; trees on SDPA."""

    name = "flashinfer"

    def __init__(self, device: torch.device, max_context_tokens: int) -> None:
        self._trees = SdpaBackend(deterministic=False)
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._max_block_ids = -(-max_context_tokens // BLOCK_SIZE) + 4
        """Of a sequence, and of the rows that round a step up."""
        self._kernels: dict[tuple[AttentionShape, int], _Kernel] = {}

    def prepare(self, slices: Sequence[SequenceSlice], num_rows: int) -> AttentionBatch:
        if self.gathers(slices):
            return self._trees.prepare(slices, num_rows)
        return FlashInferBatch(self, slices, num_rows)

    def gathers(self, slices: Sequence[SequenceSlice]) -> bool:
        return any(part.tree is not None and not part.tree.is_chain for part in slices)

    def static(self, rows: StaticRows) -> StaticAttention:
        if rows.shape.num_key_blocks:
            return self._trees.static(rows)
        return StaticFlashInfer(rows, self._workspace, self._max_block_ids)

    def static_bytes(self, shape: StepShape, num_kinds: int) -> int:
        if shape.num_key_blocks:
            return self._trees.static_bytes(shape, num_kinds)
        numbers = shape.num_sequences * (self._max_block_ids + 3) + 2
        return num_kinds * (PLAN_BYTES + numbers * torch.int32.itemsize)

    def kernel(self, kind: tuple[AttentionShape, int]) -> _Kernel:
        """The kernel of a kind of layer (and number of query heads), for steps that are not recorded."""
        kernel = self._kernels.get(kind)
        if kernel is None:
            wrapper = BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD", backend="fa2")
            kernel = self._kernels[kind] = _Kernel(wrapper, kind[1], kind[0])
        return kernel
