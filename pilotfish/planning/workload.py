"""What a fleet is asked to do: when requests arrive, and how long prompts and answers are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from pilotfish.bench.load.lengths import Lengths
from pilotfish.errors import ConfigError

_MEAN_DRAWS = 20_000
"""That a mean is taken from: right within 1 % for what people call a length distribution."""


class Request(NamedTuple):
    """One request of a workload."""

    arrival_s: float
    """Since the start."""
    num_prompt_tokens: int
    num_output_tokens: int


class Workload(Protocol):
    """Requests by the thousand."""

    @property
    def rate(self) -> float:
        """Requests per second."""

    @property
    def mean_prompt_tokens(self) -> float: ...

    @property
    def mean_output_tokens(self) -> float: ...

    def requests(self, num_requests: int, seed: int) -> Iterator[Request]:
        """The first of them, in the order of arrival. Equal seeds give equal requests."""

    def scaled(self, factor: float) -> Workload:
        """The same at a rate so many times as high."""


class PoissonWorkload:
    """Independent arrivals, independent lengths. See Workload."""

    def __init__(self, rate: float, prompt_lengths: Lengths, output_lengths: Lengths) -> None:
        """rate: requests per second. Raises ConfigError for one that is not above 0."""
        if not 0 < rate < math.inf:
            raise ConfigError(f"a rate of {rate:g} requests/s cannot be planned for: it must be above 0")
        self.rate = rate
        self._prompt_lengths, self._output_lengths = prompt_lengths, output_lengths
        self.mean_prompt_tokens = _mean(prompt_lengths)
        self.mean_output_tokens = _mean(output_lengths)

    def requests(self, num_requests: int, seed: int) -> Iterator[Request]:
        # One source each: another rate must not change the lengths, so that comparisons share their luck.
        arrivals, prompts, outputs = (random.Random(f"{seed}/{name}") for name in ("arrival", "prompt", "output"))
        now_s = 0.0
        for _ in range(num_requests):
            now_s += arrivals.expovariate(self.rate)
            yield Request(now_s, self._prompt_lengths.draw(prompts), self._output_lengths.draw(outputs))

    def scaled(self, factor: float) -> PoissonWorkload:
        return PoissonWorkload(factor * self.rate, self._prompt_lengths, self._output_lengths)


def _mean(lengths: Lengths) -> float:
    source = random.Random(0)
    return sum(lengths.draw(source) for _ in range(_MEAN_DRAWS)) / _MEAN_DRAWS
