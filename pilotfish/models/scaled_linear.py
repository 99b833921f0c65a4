"""Linears with 8-bit weights for GPUs, on torch's own matrix products.

y = x W^T with W rounded to 8 bits under a scale per output channel, once, and each row of x rounded to 8 bits under a
scale of its own, in every call (W8A8; LLM.int8 2208.07339 section 2.1 without its outliers, FP8 formats 2209.05433).
The rounding is what changes the answers. Beyond it nothing is lost: int8 products are summed exactly in int32, so that
a row's result does not depend on its neighbours; fp8 products are summed in float32, whose order the library chooses.

Legend: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

WeightFormat = Literal["int8", "fp8"]

_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
_LARGEST = {"int8": 127.0, "fp8": 448.0}
_SMALLEST_SCALE = 1e-12
"""Keeps rows of zeros from dividing by zero."""

MULTIPLE = 16
"""K and N must be multiples of it: what the kernels of both formats ask for."""
MIN_INT8_ROWS = 32
"""torch._int_mm takes no fewer than 17 on CUDA."""


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

    def __init__(self, linear: nn.Linear, weight_format: WeightFormat, device: torch.device) -> None:
        """Rounds the linear's weights on the device, one linear's at a time."""
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self._format: WeightFormat = weight_format
        values, scales = quantise_rows(linear.weight.detach().to(device), weight_format)
        self.register_buffer("weight", values)
        self.register_buffer("weight_scales", scales.view(1, -1))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, scales = quantise_rows(x.reshape(-1, self.in_features), self._format)
        multiply = _multiply_int8 if self._format == "int8" else _multiply_fp8
        out = multiply(rows, scales, self.weight, self.weight_scales, x.dtype)
        if self.bias is not None:
            out = out + self.bias
        return out.view(*x.shape[:-1], self.out_features)


def _multiply_int8(rows: Tensor, scales: Tensor, weight: Tensor, weight_scales: Tensor, dtype: torch.dtype) -> Tensor:
    num_rows = rows.shape[0]
    if rows.is_cuda and num_rows < MIN_INT8_ROWS:
        rows = F.pad(rows, (0, 0, 0, MIN_INT8_ROWS - num_rows))
    sums = torch._int_mm(rows, weight.t())[:num_rows]
    return (sums.float() * scales * weight_scales).to(dtype)


def _multiply_fp8(rows: Tensor, scales: Tensor, weight: Tensor, weight_scales: Tensor, dtype: torch.dtype) -> Tensor:
    if not rows.is_cuda:  # what the product means: for tests, where there is no GPU
        return ((rows.float() @ weight.float().t()) * scales * weight_scales).to(dtype)
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
        if type(child) is nn.Linear and child is not head
        if child.in_features % MULTIPLE == child.out_features % MULTIPLE == 0
    ]
    for parent, name, child in targets:
        setattr(parent, name, ScaledLinear(child, weight_format, device))
        child.weight = nn.Parameter(torch.empty(0), requires_grad=False)
    return len(targets)
