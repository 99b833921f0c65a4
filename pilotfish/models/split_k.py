"""Products of few rows with 8-bit weights, in Triton, which divide the inputs among programs as well (split-K).

The library's kernels have one program read all inputs of a block of outputs: with a narrow weight, most of a GPU waits.
TK-GEMM (Hoque et al., "Accelerating Llama3 FP8 Inference with Triton Kernels", 2024) found this to double the speed.

Legend: M rows, K inputs, N outputs, S shares of the inputs.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pilotfish.models.attention.rows import NUM_PROGRAMS

TILE_ROWS = (16, 64, 128)
"""Rows that a program multiplies at once: the fewest that hold them all."""
_OUTPUTS = 64
"""Outputs of a program."""
_INPUTS = 128
"""Inputs that a program takes at a time; shares are multiples of it."""
_MIN_SHARE = 512


@triton.jit(do_not_specialize=["num_rows"])
def _add_up(
    rows, weight, sums, num_rows, num_inputs, num_outputs, share,
    tile_rows: tl.constexpr, tile_outputs: tl.constexpr, tile_inputs: tl.constexpr, is_int: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, tile_rows)
    output = tl.program_id(0) * tile_outputs + tl.arange(0, tile_outputs)
    first = tl.program_id(1) * share
    total = tl.zeros([tile_rows, tile_outputs], dtype=tl.int32 if is_int else tl.float32)
    for offset in range(first, first + share, tile_inputs):
        at = offset + tl.arange(0, tile_inputs)
        exists = at < num_inputs
        x = tl.load(rows + row[:, None] * num_inputs + at[None, :],
                    mask=(row < num_rows)[:, None] & exists[None, :], other=0.0)  # fmt: skip
        w = tl.load(weight + output[None, :] * num_inputs + at[:, None],
                    mask=(output < num_outputs)[None, :] & exists[:, None], other=0.0)  # fmt: skip
        if is_int:
            total += tl.dot(x, w, out_dtype=tl.int32)
        else:  # float16 holds all of e4m3, and its products are summed in float32
            total += tl.dot(x.to(tl.float16), w.to(tl.float16))
    target = sums + (tl.program_id(1) * num_rows + row[:, None]) * num_outputs + output[None, :]
    tl.store(target, total, mask=(row < num_rows)[:, None] & (output < num_outputs)[None, :])


@torch.library.custom_op("pilotfish::split_k", mutates_args=())
def split_k(rows: Tensor, weight: Tensor) -> Tensor:
    """Products of rows [M, K] with weight [N, K], both int8 or both float8_e4m3fn and contiguous; M at most
    TILE_ROWS[-1].

    Returns the shares' sums [S, M, N], int32 or float32. S and the order of summing depend on K and N alone.
    """
    num_rows, num_inputs = rows.shape
    num_outputs = weight.shape[0]
    share, num_shares = _shares(num_inputs, num_outputs)
    tile_rows = next(size for size in TILE_ROWS if num_rows <= size)
    sums: Tensor = _sums(rows, weight)
    _add_up[triton.cdiv(num_outputs, _OUTPUTS), num_shares](
        rows, weight, sums, num_rows, num_inputs, num_outputs, share,
        tile_rows=tile_rows, tile_outputs=_OUTPUTS, tile_inputs=_INPUTS,
        is_int=rows.dtype is torch.int8, num_warps=4 if tile_rows <= 64 else 8, num_stages=4 if tile_rows <= 64 else 3,
    )  # fmt: skip
    return sums


@split_k.register_fake
def _sums(rows: Tensor, weight: Tensor) -> Tensor:
    """Room for the sums."""
    _, num_shares = _shares(*reversed(weight.shape))
    dtype = torch.int32 if rows.dtype is torch.int8 else torch.float32
    return rows.new_empty(num_shares, rows.shape[0], weight.shape[0], dtype=dtype)


def _shares(num_inputs: int, num_outputs: int) -> tuple[int, int]:
    """Inputs of a share, and how many shares fill the GPU."""
    wanted = min(-(-NUM_PROGRAMS * _OUTPUTS // num_outputs), num_inputs // _MIN_SHARE)
    share = -(-num_inputs // max(1, wanted) // _INPUTS) * _INPUTS
    return share, -(-num_inputs // share)
