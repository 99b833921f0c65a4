"""Where recorded steps leave what they compute: one place for all shapes, since one step runs at a time.

A graph's own tensors would each take memory for good: the logits of the largest shape alone are tens of megabytes.
"""

from __future__ import annotations

from torch import Tensor


class StaticOutputs:
    """Named buffers of max_rows rows, made when they are first written: before recording, in its warm-up."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._buffers: dict[str, Tensor] = {}

    def clear(self) -> None:
        """Forget the buffers: their widths may be others from now on."""
        self._buffers.clear()

    def write(self, name: str, value: Tensor) -> None:
        """Copy value [rows, width] to the first rows of a buffer."""
        buffer = self._buffers.get(name)
        if buffer is None:
            buffer = self._buffers[name] = value.new_zeros(self._max_rows, value.shape[1])
        buffer[: value.shape[0]].copy_(value)

    def read(self, name: str, num_rows: int) -> Tensor:
        """[num_rows, width]: a view, overwritten by the next step."""
        return self._buffers[name][:num_rows]
