"""How long prompts and answers are: distributions in tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from pilotfish.errors import ConfigError

FORMS = "N, fixed:N, uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA or lognormal:MEDIAN,SIGMA,LARGEST"


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths."""

    name: str
    smallest: int
    """No draw is below it; at least 1."""
    draw: Callable[[Random], int] = field(compare=False)
    """One length, in tokens."""

    def __str__(self) -> str:
        return self.name


def parse_lengths(text: str) -> Lengths:
    """One of FORMS: always the same, every length between two (both included) equally often, or with a normal
    logarithm, so that most are short and a few very long, as in chat traffic. Raises ConfigError."""
    kind, separator, rest = text.strip().partition(":")
    if not separator:
        kind, rest = "fixed", kind
    try:
        lengths = _parse(kind, rest)
    except ValueError:
        lengths = None
    if lengths is None or lengths.smallest < 1:
        raise ConfigError(f"{text!r} is no length distribution; write {FORMS}")
    return lengths


def _parse(kind: str, rest: str) -> Lengths | None:
    """None for what has the form but makes no sense. Raises ValueError for what has not even the form."""
    if kind == "fixed":
        num_tokens = int(rest)
        return Lengths(rest.strip(), num_tokens, lambda _: num_tokens)
    if kind == "uniform":
        low, high = (int(value) for value in rest.split("-"))
        return Lengths(f"uniform {low}-{high}", low, lambda random: random.randint(low, high)) if low <= high else None
    if kind == "lognormal":
        median, sigma, *cut = (float(value) for value in rest.split(","))
        largest = int(cut[0]) if cut else None
        if len(cut) > 1 or not (1 <= median < math.inf and 0 <= sigma <= 5) or (largest is not None and largest < 1):
            return None

        def draw(random: Random) -> int:
            length = max(1, round(random.lognormvariate(math.log(median), sigma)))
            return min(length, largest) if largest is not None else length

        at_most = f", at most {largest}" if largest is not None else ""
        return Lengths(f"lognormal, median {median:g}, sigma {sigma:g}{at_most}", 1, draw)
    return None
