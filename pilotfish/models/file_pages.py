"""Gives back the memory of weights that are views of their files.

transformers maps a checkpoint's files and reads nothing: a weight that is stored in the wanted dtype takes memory page
by page as it is used. Who has taken a weight over, to a device or into a layout of its own, releases it, so that the
whole model is never in memory twice.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import torch
from torch import Tensor, nn

_LIBC = ctypes.CDLL(None)
_MAPS = Path("/proc/self/maps")


def release_pages(tensor: Tensor) -> None:
    """Give back the memory of a tensor on the CPU that is a view of a file; others, and all where there is no Linux,
    stay as they are, also views that are not contiguous. It can still be read, and is then read from the file again;
    changes to it are lost."""
    if tensor.device.type != "cpu" or not tensor.nbytes or not tensor.is_contiguous():
        return  # an expanded view has more bytes than its memory: those behind are another's
    if not _is_file(tensor.data_ptr()):
        return
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
    if size > 0:
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def move_weights(model: nn.Module, device: torch.device) -> None:
    """Bring the model to the device tensor by tensor, each released before the next is read."""

    def move(tensor: Tensor) -> Tensor:
        moved = tensor.to(device)
        if moved is not tensor:
            release_pages(tensor)
        return moved

    model._apply(move)  # type: ignore[no-untyped-call]


def _is_file(address: int) -> bool:
    """Whether a file is mapped at the address: `madvise` would fill any other memory with zeros."""
    if not _MAPS.exists():
        return False
    for line in _MAPS.read_text().splitlines():
        bounds, _, _, _, inode, *_ = line.split(maxsplit=5)
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if start <= address < end:
            return inode != "0"
    return False
