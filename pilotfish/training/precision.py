"""Whether bfloat16 is faster than float32 here: some processors only emulate it."""

from __future__ import annotations

import time

import torch
from torch import Tensor

_ROWS, _WIDTH = 512, 1024


def prefers_bfloat16() -> bool:
    """Measured with a matrix product, best of three; some ten milliseconds."""
    return _seconds(torch.bfloat16) < _seconds(torch.float32)


def _seconds(dtype: torch.dtype) -> float:
    rows, weight = torch.ones(_ROWS, _WIDTH, dtype=dtype), torch.ones(_WIDTH, _WIDTH, dtype=dtype)
    return min(_time_once(rows, weight) for _ in range(3))


def _time_once(rows: Tensor, weight: Tensor) -> float:
    start = time.perf_counter()
    torch.mm(rows, weight)
    return time.perf_counter() - start
