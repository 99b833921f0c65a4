"""How long answers have been, by kind of request: whether the next one is likely to repay a drafter's start."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque

from orchestrator.requests.kind import Kind

_NUM_KEPT = 256
_LEAST_KNOWN = 16
"""Fewer answers say nothing of the next one."""


class AnswerLengths:
    """The latest answers of each kind."""

    def __init__(self) -> None:
        self._lengths: dict[Kind, deque[int]] = defaultdict(lambda: deque(maxlen=_NUM_KEPT))

    def add(self, kind: Kind, num_tokens: int) -> None:
        """An answer has ended after so many tokens."""
        self._lengths[kind].append(num_tokens)

    def median(self, kind: Kind) -> float:
        """Infinite as long as too few answers are known."""
        lengths = self._lengths[kind]
        return statistics.median(lengths) if len(lengths) >= _LEAST_KNOWN else math.inf
