"""Duration of a target replica's steps by what they compute: a profile if there is one, corrected by measurement."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from orchestrator.control.window import MedianWindow
from pilotfish.profiles import StepCost
from pilotfish.types import LoadReport

_EXACT_TOKENS = 32
"""Up to so many rows each size is learned by itself: kernels work on tiles, so that 15 or 17 rows may take an eighth
longer than 16. Taken together, they made plain decoding of 16 sequences look so much slower while these speculated."""
_BUCKETS_PER_DOUBLING = 4
_MIN_STEPS = 5
"""Of a size, for their median to be believed for good."""
_MAX_STEPS_BETWEEN = 512
"""After as many others, sizes of which there were fewer are forgotten."""
_MIN_MIXED_STEPS = 32
"""After as many steps that all held a prefill there will be no other ones."""


class StepCosts:
    """Learns from load reports. Without a profile, what was never measured costs what its neighbour does."""

    def __init__(self, profile: StepCost | None = None) -> None:
        self._profile = profile
        self._buckets: dict[int, MedianWindow] = {}
        self._places: dict[int, float] = {}
        """Token rows that each bucket stands for: of the latest step in it."""
        self._order: list[int] = []
        self._uncertain: dict[int, int] = {}
        """Buckets with fewer than _MIN_STEPS, and the number of the latest one of each: the oldest first."""
        self._num_steps = 0
        self._num_mixed_steps = 0
        """With a prefill in them, since the last one without."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known about steps."""
        return self._profile is not None or bool(self._buckets)

    def add(self, load: LoadReport) -> bool:
        """Learn from the step that a report tells of.

        Returns whether it told of one in which somebody decoded.
        """
        num_sequences, num_tokens = load.num_sequences_decoding, load.num_step_decode_tokens
        if load.step_decode_time_ns <= 0 or not 0 < num_sequences <= num_tokens:
            return False
        self._num_mixed_steps = self._num_mixed_steps + 1 if load.num_step_prefill_tokens else 0
        # Beside prefills the same rows take another time: better no mixture, as long as there is a choice.
        if not 0 < self._num_mixed_steps < _MIN_MIXED_STEPS:
            self.add_step(num_sequences, num_tokens, load.step_decode_time_ns / 1e9)
        return True

    def add_step(self, num_sequences: int, num_tokens: int, seconds: float) -> None:
        bucket = _bucket(num_tokens)
        if bucket not in self._buckets:
            self._buckets[bucket] = MedianWindow()
            insort(self._order, bucket)
        self._places[bucket] = num_tokens
        steps = self._buckets[bucket]
        steps.add(seconds / self._modelled_s(num_sequences, num_tokens))
        self._uncertain.pop(bucket, None)
        if len(steps) < _MIN_STEPS:
            self._uncertain[bucket] = self._num_steps
        self._num_steps += 1
        self._forget_uncertain()

    def _forget_uncertain(self) -> None:
        """A few steps that were slow by chance would keep everybody from steps of their size, and so from others."""
        oldest = next(iter(self._uncertain), None)
        if oldest is not None and self._num_steps - self._uncertain[oldest] > _MAX_STEPS_BETWEEN:
            del self._uncertain[oldest], self._buckets[oldest], self._places[oldest]
            self._order.remove(oldest)

    def step_s(self, num_sequences: int, num_tokens: int) -> float:
        """Seconds of a step; 0 as long as nothing is known."""
        if not self._order:
            return self._modelled_s(num_sequences, num_tokens) if self._profile else 0.0
        return self._modelled_s(num_sequences, num_tokens) * self._correction(num_tokens)

    def _modelled_s(self, num_sequences: int, num_tokens: int) -> float:
        return 1.0 if self._profile is None else self._profile.step_s(num_sequences, num_tokens)

    def _correction(self, num_tokens: int) -> float:
        """Measured over modelled: between the buckets beside, and beyond the last on the last slope."""
        order = self._order
        index = bisect_left(order, _bucket(num_tokens))
        if index == len(order):
            return self._beyond(num_tokens)
        above = self._at(order[index])
        if index == 0 or self._places[order[index]] == num_tokens:
            return above
        low, high = self._places[order[index - 1]], self._places[order[index]]
        share = min(1.0, max(0.0, (num_tokens - low) / (high - low)))
        return (1 - share) * self._at(order[index - 1]) + share * above

    def _beyond(self, num_tokens: int) -> float:
        last = self._order[-1]
        # A profile knows the shape; without one the steps grow as they did over the last doubling.
        earlier = [bucket for bucket in self._order if self._places[bucket] <= self._places[last] / 2]
        if self._profile is not None or not earlier:
            return self._at(last)
        low = earlier[-1]
        slope = (self._at(last) - self._at(low)) / (self._places[last] - self._places[low])
        return self._at(last) + max(0.0, slope) * (num_tokens - self._places[last])

    def _at(self, bucket: int) -> float:
        value = self._buckets[bucket].value
        assert value is not None
        return value


def _bucket(num_tokens: int) -> int:
    if num_tokens <= _EXACT_TOKENS:
        return num_tokens
    return _EXACT_TOKENS + max(1, round(_BUCKETS_PER_DOUBLING * math.log2(num_tokens / _EXACT_TOKENS)))
