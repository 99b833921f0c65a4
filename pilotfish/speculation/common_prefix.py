"""What two runs of tokens begin with alike. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence


def num_common_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))
