"""Virtual time, and what disturbs it."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import simpy

NETWORK_S = 0.0002
"""One way, to either pool."""
NS = 1e9
"""In a second."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What a real machine adds to a round; by default nothing."""

    handling_s: float = 0.0
    """Of a processor that handles one message of all sequences after the other: median;"""
    handling_spread: float = 0.5
    """standard deviation of its logarithm."""
    stalls_per_s: float = 0.0
    """Times that it handles nothing for a while, as where other programs compute beside it;"""
    stall_s: float = 0.006
    """for how long: median;"""
    stall_spread: float = 0.8
    """standard deviation of its logarithm."""
    step_spread: float = 0.0
    """Standard deviation of the logarithm of what steps take."""


BUSY_MACHINE = Noise(handling_s=0.00008, stalls_per_s=1.0, step_spread=0.02)
"""About what two cores that the services and their clients share add."""


class World:
    """Events in virtual time, in seconds."""

    def __init__(self, seed: int = 0, noise: Noise | None = None, start_s: float = 0.0) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self._noise = noise or Noise()
        self._noise_random = random.Random(f"noise {seed}")
        self._env = simpy.Environment(start_s)
        self._processor_free_s = start_s
        self._next_stall_s = math.inf
        if self._noise.stalls_per_s:
            self._next_stall_s = start_s + self._noise_random.expovariate(self._noise.stalls_per_s)

    @property
    def now_s(self) -> float:
        return self._env.now

    @property
    def now_ns(self) -> int:
        return round(NS * self.now_s)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self._env.timeout(delay_s).callbacks.append(lambda _: action())

    def step_s(self, seconds: float) -> float:
        """What a step takes that should take so long."""
        return seconds * self._factor(self._noise.step_spread)

    def run(self, until_s: float) -> None:
        self._env.run(until_s)

    def handle(self, action: Callable[[], None]) -> None:
        """When the processor comes to it."""
        noise, start_s = self._noise, max(self.now_s, self._processor_free_s)
        while self._next_stall_s <= start_s:
            stall_s = noise.stall_s * self._factor(noise.stall_spread)
            start_s = max(start_s, self._next_stall_s + stall_s)
            self._next_stall_s += stall_s + self._noise_random.expovariate(noise.stalls_per_s)
        self._processor_free_s = start_s + noise.handling_s * self._factor(noise.handling_spread)
        if self._processor_free_s > self.now_s:
            self.after(self._processor_free_s - self.now_s, action)
        else:
            action()

    def _factor(self, spread: float) -> float:
        return self._noise_random.lognormvariate(0.0, spread) if spread else 1.0
