"""Linears for CPU: weights packed once for oneDNN, rows cut so that results do not depend on the batch.

oneDNN rounds a row the same way while a call has between 4 and 32 rows: outside, other kernels take
over (a single row on AMD Zen 4, more than 32 rows on Intel AMX; float32 differs everywhere).
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from pilotfish.models.file_pages import release_pages

MIN_ROWS = 4
MAX_ROWS = 32

logger = logging.getLogger(__name__)


class PackedLinear(nn.Module):
    """A bfloat16 linear with packed weights; takes [..., in_features], gives [..., out_features].

    With deterministic, at most MAX_ROWS rows are multiplied at a time.
    """

    def __init__(self, linear: nn.Linear, deterministic: bool) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self._deterministic = deterministic
        self.weight = linear.weight.new_empty(0, self.in_features)  # some models look at its dtype
        # Plain attributes, not parameters: the packed layout is opaque to everything but oneDNN.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), MAX_ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        if not len(rows):  # a step that only prefills wants no logits
            return x.new_empty(*x.shape[:-1], self.out_features)
        tiles = [self._multiply(tile) for tile in torch.split(rows, MAX_ROWS if self._deterministic else len(rows))]
        out = tiles[0] if len(tiles) == 1 else torch.cat(tiles)
        return out.view(*x.shape[:-1], self.out_features)

    def _multiply(self, rows: Tensor) -> Tensor:
        num_rows = len(rows)
        if num_rows < MIN_ROWS:
            rows = torch.cat((rows, rows[-1:].expand(MIN_ROWS - num_rows, -1)))
        result: Tensor = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), self._packed, self._bias, "none", [], "")
        return result[:num_rows]


def pack_linears(model: nn.Module, deterministic: bool) -> int:
    """Replace every bfloat16 nn.Linear of a CPU model in place; returns how many.

    The original weights are freed one by one; an embedding tied to the output projection keeps its own. Where oneDNN
    has no bfloat16 for the processor (x86 without AVX-512), the linears stay torch's own.
    """
    targets = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child.weight.dtype is torch.bfloat16 and child.weight.device.type == "cpu"
    ]
    if targets and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        logger.warning("bfloat16 is slow on this processor (oneDNN has none without AVX-512)")
        return 0
    num_linears = len(targets)
    while targets:
        parent, name, child = targets.pop()
        setattr(parent, name, PackedLinear(child, deterministic))
        release_pages(child.weight)
    return num_linears
