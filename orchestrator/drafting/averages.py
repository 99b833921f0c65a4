"""An average of the latest values that one outlier does not move."""

from __future__ import annotations


class ClippedAverage:
    """An exponential moving average that one outlier hardly moves; None before the first value.

    Unlike a median it tells what a mixture of two costs: drafts that were ready and drafts that were not.
    """

    __slots__ = ("_deviation", "_weight", "num_values", "value")

    def __init__(self, weight: float = 0.1) -> None:
        """weight: of the latest value; about 2 / weight values count."""
        self._weight = weight
        self.num_values = 0
        self._deviation = 0.0
        self.value: float | None = None

    def add(self, value: float) -> None:
        self.num_values += 1
        if self.value is None:
            self.value = value
            self._deviation = abs(value) / 2
            return
        weight = max(self._weight, 1 / self.num_values)
        difference = value - self.value
        limit = 3 * self._deviation
        # The deviation learns from what is cut: a new level is believed after a few values.
        self._deviation += weight * (abs(difference) - self._deviation)
        self.value += weight * max(-limit, min(limit, difference))
