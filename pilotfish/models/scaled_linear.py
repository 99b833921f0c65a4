"""Linears with 8-bit weights for GPUs, on torch's own matrix products or, where it is faster, on split_k.py's.

y = x W^T with W rounded to 8 bits under a scale per output channel, once, and each row of x rounded to 8 bits under a
scale of its own, in every call (W8A8; LLM.int8 2208.07339 section 2.1 without its outliers, FP8 formats 2209.05433).
The rounding is what changes the answers. Beyond it nothing is lost: int8 products are summed exactly in int32, so that
a row's result does not depend on its neighbours; fp8 products are summed in float32, in an order that depends on the
kernel.

Legend: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import logging
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pilotfish.config import Quantization
from pilotfish.models.file_pages import release_pages
from pilotfish.models.graphs.recorder import GraphRecorder, recorder_for

logger = logging.getLogger(__name__)

WeightFormat = Literal["int8", "fp8"]

_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
_LARGEST = {"int8": 127.0, "fp8": 448.0}
_SMALLEST_SCALE = 1e-12
"""Keeps rows of zeros from dividing by zero."""

MULTIPLE = 16
"""K and N must be multiples of it: what the kernels of both formats ask for."""
MIN_INT8_ROWS = 32
"""Rows are padded to so many: torch._int_mm takes no fewer than 17 on CUDA."""
SPLIT_K_ROWS = (16, 64, 128)
"""See split_k.TILE_ROWS; here, since Triton is not everywhere."""


def weight_format_of(quantization: Quantization) -> WeightFormat | None:
    """What linears on a GPU are rounded to; None: they are not."""
    return quantization if quantization == "int8" or quantization == "fp8" else None


def quantise_rows(rows: Tensor, weight_format: WeightFormat) -> tuple[Tensor, Tensor]:
    """8-bit values [M, K] and float32 scales [M, 1] whose product is rows [M, K], up to rounding."""
    wide = rows.float()
    largest = _LARGEST[weight_format]
    scales = wide.abs().amax(-1, keepdim=True).div_(largest).clamp_(min=_SMALLEST_SCALE)
    values = wide / scales
    if weight_format == "int8":
        values = values.round_()
    # A quotient may round to just above the format's largest number, which in fp8 is not a number.
    return values.clamp_(-largest, largest).to(_DTYPES[weight_format]), scales


class ScaledLinear(nn.Module):
    """A linear with 8-bit weights; takes [..., K], gives [..., N] in the dtype of what it takes."""

    weight: Tensor
    """[N, K] 8-bit."""
    weight_scales: Tensor
    """[1, N] float32."""
    max_split_k_rows = 0
    """Inputs of up to so many rows take the split-K product."""

    def __init__(self, linear: nn.Linear, weight_format: WeightFormat, device: torch.device) -> None:
        """Rounds the linear's weights on the device, one linear's at a time."""
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight_format: WeightFormat = weight_format
        values, scales = quantise_rows(linear.weight.detach().to(device), weight_format)
        self.register_buffer("weight", values)
        self.register_buffer("weight_scales", scales.view(1, -1))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, scales = quantise_rows(x.reshape(-1, self.in_features), self.weight_format)
        if len(rows) <= self.max_split_k_rows:
            out = _scaled(_split_k_sums(rows, self.weight), scales, self.weight_scales, x.dtype)
        elif self.weight_format == "int8":
            out = _scaled(_int8_sums(rows, self.weight), scales, self.weight_scales, x.dtype)
        else:
            out = _multiply_fp8(rows, scales, self.weight, self.weight_scales, x.dtype)
        if self.bias is not None:
            out = out + self.bias
        return out.view(*x.shape[:-1], self.out_features)


def _scaled(sums: Tensor, scales: Tensor, weight_scales: Tensor, dtype: torch.dtype) -> Tensor:
    return (sums.float() * scales * weight_scales).to(dtype)


def _int8_sums(rows: Tensor, weight: Tensor) -> Tensor:
    num_rows = rows.shape[0]
    if rows.is_cuda and num_rows < MIN_INT8_ROWS:
        rows = F.pad(rows, (0, 0, 0, MIN_INT8_ROWS - num_rows))
    return torch._int_mm(rows, weight.t())[:num_rows]


def _split_k_sums(rows: Tensor, weight: Tensor) -> Tensor:
    shares: Tensor = torch.ops.pilotfish.split_k(rows, weight)
    return shares.sum(0, dtype=shares.dtype)


def _multiply_fp8(rows: Tensor, scales: Tensor, weight: Tensor, weight_scales: Tensor, dtype: torch.dtype) -> Tensor:
    if not rows.is_cuda:  # what the product means: for tests, where there is no GPU
        return _scaled(rows.float() @ weight.float().t(), scales, weight_scales, dtype)
    # With scales by row the kernel gives bfloat16 and nothing else.
    out = torch._scaled_mm(
        rows, weight.t(), scale_a=scales, scale_b=weight_scales, out_dtype=torch.bfloat16, use_fast_accum=False
    )
    return out.to(dtype)


def quantise_linears(model: nn.Module, weight_format: WeightFormat, device: torch.device) -> int:
    """Replace the linears of a model's layers in place; returns how many.

    The output projection stays as it is (it decides near ties, and may be the embedding), and so does a linear whose
    sizes the kernels do not take. The originals are freed one by one: the device never holds more than one of them.
    """
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    targets = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if child is not head and can_quantise(child)
    ]
    for parent, name, child in targets:
        setattr(parent, name, ScaledLinear(child, weight_format, device))
        release_pages(child.weight)
        child.weight = nn.Parameter(torch.empty(0), requires_grad=False)
    return len(targets)


def can_quantise(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether it is a plain linear whose sizes the kernels take."""
    if type(module) is not nn.Linear:
        return False
    return module.in_features % MULTIPLE == module.out_features % MULTIPLE == 0


def choose_products(model: nn.Module, device: torch.device) -> None:
    """Choose the product of every 8-bit linear of a model on a GPU, by time: see choose_product."""
    by_shape: defaultdict[torch.Size, list[ScaledLinear]] = defaultdict(list)
    for module in model.modules():
        if isinstance(module, ScaledLinear):
            by_shape[module.weight.shape].append(module)
    if not by_shape or device.type != "cuda":
        return
    for linears in by_shape.values():
        try:
            # Triton comes with torch's builds for GPUs and only with them.
            import pilotfish.models.split_k  # noqa: F401

            choose_product(linears, partial(_time_s, recorder=recorder_for(device), device=device))
        except Exception as error:
            # Triton's own, of any kind: without its package or a C compiler, say, or with too little shared memory.
            shape, reason = tuple(linears[0].weight.shape), textwrap.shorten(str(error), 200)
            logger.warning(
                "8-bit products of a weight of %s are the library's where they were not timed: %s", shape, reason
            )


def choose_product(linears: Sequence[ScaledLinear], time_s: Callable[[Callable[[], None]], float]) -> None:
    """Have linears of one shape and format take the split-K product for few rows, if it is faster than the library's.

    time_s: seconds that work takes, which is all of them: each then finds its weight in memory, as in a step, and not
    in a cache. What torch.compile fuses with what follows is left out.
    """
    first = linears[0]
    for num_rows in SPLIT_K_ROWS:
        ones = first.weight_scales.new_ones(num_rows, first.in_features)
        rows, scales = quantise_rows(ones, first.weight_format)

        def library(rows: Tensor = rows, scales: Tensor = scales) -> None:
            for linear in linears:
                if linear.weight_format == "int8":
                    _int8_sums(rows, linear.weight)
                else:
                    _multiply_fp8(rows, scales, linear.weight, linear.weight_scales, torch.bfloat16)

        def split_k(rows: Tensor = rows) -> None:
            for linear in linears:
                _split_k_sums(rows, linear.weight)

        if time_s(split_k) >= time_s(library):
            break
        for linear in linears:
            linear.max_split_k_rows = num_rows


def _time_s(work: Callable[[], None], *, recorder: GraphRecorder, device: torch.device) -> float:
    """The least time, of a few, of the work as recorded, which is how steps run."""
    replay, times = recorder.record(work), []
    for _ in range(4):
        torch.cuda.synchronize(device)
        start_s = time.perf_counter()
        replay()
        torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start_s)
    return min(times)
