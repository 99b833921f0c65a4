"""How long prompts and answers are: distributions in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Protocol

from pilotfish.errors import ConfigError

FORMS = "N, fixed:N, uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA or lognormal:MEDIAN,SIGMA,LARGEST"


class Lengths(Protocol):
    """A distribution of lengths."""

    @property
    def smallest(self) -> int:
        """No draw is below it; at least 1."""

    def draw(self, random: Random) -> int:
        """One length, in tokens."""


@dataclass(frozen=True)
class FixedLength:
    """Always the same."""

    num_tokens: int

    def __str__(self) -> str:
        return str(self.num_tokens)

    @property
    def smallest(self) -> int:
        return self.num_tokens

    def draw(self, random: Random) -> int:
        """The length."""
        del random
        return self.num_tokens


@dataclass(frozen=True)
class UniformLength:
    """Every length from low to high, both included, equally often."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"uniform {self.low}-{self.high}"

    @property
    def smallest(self) -> int:
        return self.low

    def draw(self, random: Random) -> int:
        """One of them."""
        return random.randint(self.low, self.high)


@dataclass(frozen=True)
class LognormalLength:
    """The logarithm is normal: most are short, a few are very long, as in chat traffic."""

    median: float
    sigma: float
    """Standard deviation of the natural logarithm."""
    largest: int | None = None
    """Longer draws are cut to it."""

    def __str__(self) -> str:
        cut = f", at most {self.largest}" if self.largest else ""
        return f"lognormal, median {self.median:g}, sigma {self.sigma:g}{cut}"

    @property
    def smallest(self) -> int:
        return 1

    def draw(self, random: Random) -> int:
        """One length, rounded."""
        length = max(1, round(random.lognormvariate(math.log(self.median), self.sigma)))
        return min(length, self.largest) if self.largest else length


def parse_lengths(text: str) -> Lengths:
    """One of FORMS. Raises ConfigError."""
    kind, separator, rest = text.strip().partition(":")
    if not separator:
        kind, rest = "fixed", kind
    try:
        lengths = _parse(kind, rest)
    except ValueError:
        lengths = None
    if lengths is None:
        raise ConfigError(f"{text!r} is no length distribution; write {FORMS}")
    return lengths


def _parse(kind: str, rest: str) -> Lengths | None:
    """None for what has the form but makes no sense. Raises ValueError for what has not even the form."""
    if kind == "fixed":
        fixed = FixedLength(int(rest))
        return fixed if fixed.num_tokens >= 1 else None
    if kind == "uniform":
        low, _, high = rest.partition("-")
        uniform = UniformLength(int(low), int(high))
        return uniform if 1 <= uniform.low <= uniform.high else None
    if kind == "lognormal":
        median, sigma, *largest = rest.split(",")
        lognormal = LognormalLength(float(median), float(sigma), *(int(value) for value in largest[:1]))
        is_sensible = 1 <= lognormal.median < math.inf and 0 <= lognormal.sigma <= 5 and len(largest) <= 1
        return lognormal if is_sensible and (lognormal.largest is None or lognormal.largest >= 1) else None
    return None
