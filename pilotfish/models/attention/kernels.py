"""Paged attention in Triton: reads keys and values in place, whatever the mixture of rows.

The rows of a step are cut into tiles: up to TILE_ROWS consecutive rows of one sequence over its keys. A program takes a
piece of a tile, which is a share of its keys, and a key head, as FlashDecoding does, so that a step of few sequences
fills the GPU; a second kernel joins the shares. Pieces and rows beyond those of a step do nothing: a recorded launch
fits any step.

Legend: T rows, P pieces, H query heads, M key heads, G = H / M, D head size, S shares of the keys.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-any-return"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pilotfish.models.attention.paged import AttentionShape, SequenceSlice
from pilotfish.models.attention.rows import FEW_ROWS, TREE_SPAN, StepRows
from pilotfish.models.decoder import StepInput
from pilotfish.types import BLOCK_SIZE

_WIDE_KEY_BYTES = 256


@triton.jit(do_not_specialize=["num_rows", "window", "first_key"])
def _attend_share(
    query, pool, places, positions, ancestors, pieces, block_ids,
    sums, maxima, weights,
    query_row_stride, query_head_stride, num_rows, scale, window, first_key,
    softcap: tl.constexpr, num_key_heads: tl.constexpr, group: tl.constexpr,
    dim: tl.constexpr, dim_padded: tl.constexpr,
    tile_places: tl.constexpr, num_keys_at_once: tl.constexpr, block_size: tl.constexpr, tree_span: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    piece, head = pieces + 6 * tl.program_id(0), tl.program_id(1)
    first_row = tl.load(piece)
    num_tile_rows = tl.load(piece + 1)
    if num_tile_rows > 0:
        first_block = tl.load(piece + 2)
        num_keys = tl.load(piece + 3).to(tl.int32)
        share = tl.load(piece + 4).to(tl.int32)
        num_shares = tl.load(piece + 5).to(tl.int32)
        at = tl.arange(0, tile_places)
        valid = at // group < num_tile_rows
        row = first_row + at // group
        query_head = head * group + at % group
        d = tl.arange(0, dim_padded)
        queries = tl.load(
            query + row[:, None] * query_row_stride + query_head[:, None] * query_head_stride + d[None, :],
            mask=valid[:, None] & (d < dim)[None, :],
            other=0.0,
        )
        place = tl.load(places + row, mask=valid, other=0).to(tl.int32)
        position = tl.load(positions + row, mask=valid, other=0).to(tl.int32)
        ancestor = tl.load(ancestors + row, mask=valid, other=0)
        # Keys that a sliding window hides from all rows of the tile.
        oldest = tl.min(tl.where(valid, position, 1 << 30), 0) - window + 1
        first = tl.maximum(oldest, 0) // num_keys_at_once * num_keys_at_once
        span = tl.cdiv(tl.cdiv(num_keys - first, num_shares), num_keys_at_once) * num_keys_at_once
        start = first + share * span
        end = tl.minimum(start + span, num_keys)
        total = tl.zeros([tile_places], dtype=tl.float32)
        largest = tl.full([tile_places], -float("inf"), dtype=tl.float32)
        output = tl.zeros([tile_places, dim_padded], dtype=tl.float32)
        for offset in range(start, end, num_keys_at_once):
            key_at = offset + tl.arange(0, num_keys_at_once)
            exists = key_at < end
            block = tl.load(block_ids + first_block + key_at // block_size, mask=exists, other=0)
            slot = block * block_size + key_at % block_size
            base = (slot * (2 * num_key_heads) + head) * dim
            keys = tl.load(pool + base[None, :] + d[:, None], mask=exists[None, :] & (d < dim)[:, None], other=0.0)
            scores = tl.dot(queries, keys, input_precision=precision) * scale
            if softcap > 0:
                scaled = scores / softcap
                scores = softcap * (1 - 2 / (tl.exp(2 * scaled) + 1))
            behind = key_at[None, :] - place[:, None]
            in_text = (behind <= 0) & (position[:, None] - key_at[None, :] < window)
            bit = (ancestor[:, None] >> tl.minimum(tl.maximum(behind, 0), tree_span - 1)) & 1
            seen = in_text | ((behind > 0) & (behind < tree_span) & (bit == 1))
            seen &= (key_at >= first_key)[None, :] | (behind == 0)
            scores = tl.where(seen & exists[None, :], scores, -float("inf"))
            new_largest = tl.maximum(largest, tl.max(scores, 1))
            reference = tl.where(new_largest == -float("inf"), 0.0, new_largest)
            shrunk = tl.exp(largest - reference)
            probs = tl.exp(scores - reference[:, None])
            total = total * shrunk + tl.sum(probs, 1)
            values = tl.load(
                pool + (base + num_key_heads * dim)[:, None] + d[None, :],
                mask=exists[:, None] & (d < dim)[None, :],
                other=0.0,
            )
            output = output * shrunk[:, None] + tl.dot(probs.to(values.dtype), values, input_precision=precision)
            largest = new_largest
        result = (share * num_rows + row) * (num_key_heads * group) + query_head
        tl.store(maxima + result, largest, mask=valid)
        tl.store(weights + result, total, mask=valid)
        tl.store(sums + result[:, None] * dim + d[None, :], output, mask=valid[:, None] & (d < dim)[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def _join_shares(
    sums, maxima, weights, shares, counts, output, num_rows,
    max_shares: tl.constexpr, num_heads: tl.constexpr, dim: tl.constexpr, dim_padded: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    share, d = tl.arange(0, max_shares), tl.arange(0, dim_padded)
    exists = (share < tl.load(shares + row)) & (row < tl.load(counts))
    at = (share * num_rows + row) * num_heads + head
    maximum = tl.load(maxima + at, mask=exists, other=-float("inf"))
    largest = tl.max(maximum, 0)
    factor = tl.exp(maximum - tl.where(largest == -float("inf"), 0.0, largest))
    total = tl.sum(tl.load(weights + at, mask=exists, other=0.0) * factor, 0)
    parts = tl.load(sums + at[:, None] * dim + d[None, :], mask=exists[:, None] & (d < dim)[None, :], other=0.0)
    # Rows that only pad the step must stay finite.
    result = tl.sum(parts * factor[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(output + (row * num_heads + head) * dim + d, result, mask=d < dim)


@triton.jit
def _write(
    key, value, pool, slots, key_row_stride, key_head_stride, value_row_stride, value_head_stride,
    dim: tl.constexpr, dim_padded: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, dim_padded)
    target = pool + (tl.load(slots + row) * (2 * tl.num_programs(1)) + head) * dim + d
    tl.store(target, tl.load(key + row * key_row_stride + head * key_head_stride + d, mask=d < dim), mask=d < dim)
    values = tl.load(value + row * value_row_stride + head * value_head_stride + d, mask=d < dim)
    tl.store(target + tl.num_programs(1) * dim, values, mask=d < dim)


class KernelBatch:
    """See AttentionBatch; over rows that lie on the device, recorded or not."""

    def __init__(self, rows: StepRows) -> None:
        self._rows = rows

    def write_kv(self, pool: Tensor, key: Tensor, value: Tensor) -> None:
        num_rows, num_heads, dim = key.shape
        _write[num_rows, num_heads](
            key, value, pool, self._rows.slots, *key.stride()[:2], *value.stride()[:2],
            dim=dim, dim_padded=_padded(dim),
        )  # fmt: skip

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        rows = self._rows
        num_rows, num_heads, dim = query.shape
        group = num_heads // shape.num_kv_heads
        tile_places = max(16, triton.next_power_of_2(rows.shape.tile_rows * group))
        # Measured on an H100: few rows wait for keys, many for registers. Wide keys must fit into shared memory.
        num_keys = 128 if tile_places <= 32 else 64
        num_keys //= 2 if _padded(dim) * query.itemsize > _WIDE_KEY_BYTES else 1
        num_shares = rows.shape.max_shares
        sums = query.new_empty(num_shares, num_rows, num_heads, dim, dtype=torch.float32)
        maxima = query.new_empty(2, num_shares, num_rows, num_heads, dtype=torch.float32)
        output = query.new_empty(num_rows, num_heads * dim)
        _attend_share[rows.shape.num_pieces, shape.num_kv_heads](
            query, pool, rows.places, rows.positions, rows.ancestors, rows.pieces, rows.block_ids,
            sums, maxima[0], maxima[1],
            *query.stride()[:2], num_rows, shape.scale, shape.sliding_window or 1 << 30, shape.first_key,
            softcap=shape.softcap or 0.0, num_key_heads=shape.num_kv_heads, group=group,
            dim=dim, dim_padded=_padded(dim),
            tile_places=tile_places, num_warps=8 if tile_places > 64 else 4, num_stages=2,
            num_keys_at_once=num_keys, block_size=BLOCK_SIZE, tree_span=TREE_SPAN,
            precision="ieee" if query.dtype is torch.float32 else "tf32",
        )  # fmt: skip
        _join_shares[num_rows, num_heads](
            sums, maxima[0], maxima[1], rows.shares, rows.counts, output, num_rows,
            max_shares=num_shares, num_heads=num_heads, dim=dim, dim_padded=_padded(dim),
        )  # fmt: skip
        return output


def try_out(num_heads: int, shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> None:
    """Launch the kernels once for few rows and once for many. Raises what Triton does where it cannot: without a C
    compiler, say, or with too little shared memory."""
    for num_rows in (1, FEW_ROWS + 1):
        blocks = range(-(-num_rows // BLOCK_SIZE))
        step = StepInput([0] * num_rows, range(num_rows), [SequenceSlice(0, num_rows, 0, blocks)], [0])
        batch = KernelBatch(StepRows.holding(step, shape.num_kv_heads, device))
        pool = torch.zeros(len(blocks) * BLOCK_SIZE, 2 * shape.num_kv_heads, shape.head_dim, dtype=dtype, device=device)
        key, value = pool[:num_rows].chunk(2, dim=1)
        batch.write_kv(torch.zeros_like(pool), key, value)
        batch.attend(pool.new_zeros(num_rows, num_heads, shape.head_dim), pool, shape)


def _padded(dim: int) -> int:
    return max(16, triton.next_power_of_2(dim))
