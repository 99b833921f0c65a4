"""Tokens that a grammar, or allowed_token_ids, forbids at a position are impossible there.

Shapes: R rows, V vocabulary, W = ceil(V / 8) or more bytes of a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pilotfish.speculation.sampling.transfer import moved, to_device


class TokenConstraint(Protocol):
    """What may follow a sequence's output."""

    def allowed(self, draft_token_ids: Sequence[int]) -> bytes | None:
        """What may follow these drafts after the output: W bytes, bit i % 8 of byte i // 8 for token i.

        None: anything, since the position cannot be reached.
        """
        ...


def both(mask: bytes | None, other: bytes | None) -> bytes | None:
    """What both masks, of equal lengths, allow; where that is nothing, what the first does: a sequence that has come to
    such a place ends with an error."""
    if mask is None or other is None:
        return other if mask is None else mask
    common = np.frombuffer(mask, dtype=np.uint8) & np.frombuffer(other, dtype=np.uint8)
    return common.tobytes() if common.any() else mask


def without_forbidden(logits: Tensor, masks: Sequence[bytes | None]) -> Tensor:
    """Logits [R, V] where what masks (one per row) do not allow is -inf; a copy, unless no row has a mask."""
    row_ids = [row for row, mask in enumerate(masks) if mask is not None]
    if not row_ids:
        return logits
    packed = np.frombuffer(b"".join(mask for mask in masks if mask is not None), dtype=np.uint8)
    forbidden = _unpack_forbidden(packed.reshape(len(row_ids), -1), logits.shape[1], logits.device)
    if len(row_ids) == logits.shape[0]:
        return logits.masked_fill(forbidden, -torch.inf)
    index = to_device(row_ids, torch.int64, logits.device)
    return logits.index_copy(0, index, logits[index].masked_fill_(forbidden, -torch.inf))


def _unpack_forbidden(
    packed: np.ndarray[tuple[int, int], np.dtype[np.uint8]], size: int, device: torch.device
) -> Tensor:
    """bool [R, V] of allowed bits [R, W]. Bits travel to an accelerator as they are: an eighth of the bytes."""
    if device.type == "cpu":
        return torch.from_numpy(np.unpackbits(~packed, axis=1, count=size, bitorder="little").view(np.bool_))
    bits = moved(torch.from_numpy(~packed), device)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    return ((bits.unsqueeze(-1) >> shifts) & 1).bool().flatten(1)[:, :size]
