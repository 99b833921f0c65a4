"""What waiting for a proposal takes."""

from __future__ import annotations

from orchestrator.control.window import ClippedAverage


class ProposeTime:
    """Of K tokens: a fixed part, which drafting ahead may hide, and a part for each token. Seconds."""

    def __init__(self) -> None:
        self._fixed = ClippedAverage()
        self._per_token = ClippedAverage()

    @property
    def is_known(self) -> bool:
        return self._fixed.value is not None

    def add(self, num_tokens: int, elapsed_s: float, compute_s: float) -> None:
        """compute_s: the drafter's own account of the time that the tokens took it."""
        self._per_token.add(compute_s / num_tokens)
        assert self._per_token.value is not None
        self._fixed.add(elapsed_s - self._per_token.value * num_tokens)

    def seconds(self, num_tokens: int) -> float:
        """Expected for num_tokens; 0 as long as nothing is known, so that it gets measured."""
        if self._fixed.value is None or self._per_token.value is None:
            return 0.0
        return max(0.0, self._fixed.value + self._per_token.value * num_tokens)
