"""How hard a service is pressed, and when requests arrive then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pilotfish.bench.load.trace import TraceEntry
from pilotfish.errors import ConfigError

LevelKind = Literal["concurrency", "rate", "trace"]

_UNITS: dict[LevelKind, str] = {"concurrency": " in flight", "rate": " req/s", "trace": "x trace"}


@dataclass(frozen=True)
class Level:
    """One load.

    `concurrency`: so many clients, each asks again when it has its answer (closed loop: a slow service is asked
    less). `rate`: so many requests a second whatever becomes of them (open loop). `trace`: the arrivals of a
    trace, so many times as fast (open loop).
    """

    kind: LevelKind
    value: float
    burstiness: float = 1.0
    """Of kind `rate`, as in vLLM: shape of the gamma distribution of the gaps. 1: a Poisson process; below 1
    requests come in bursts, above 1 more evenly."""

    def __post_init__(self) -> None:
        if not 0 < self.value < float("inf"):
            raise ConfigError(f"{self.kind} must be above 0, not {self.value:g}")
        if self.kind == "concurrency" and self.value != int(self.value):
            raise ConfigError(f"concurrency must be a whole number, not {self.value:g}")
        if not 0 < self.burstiness < float("inf"):
            raise ConfigError(f"burstiness must be above 0, not {self.burstiness:g}")

    def __str__(self) -> str:
        return f"{self.value:g}{_UNITS[self.kind]}"

    @property
    def is_open_loop(self) -> bool:
        """Arrivals do not wait for answers."""
        return self.kind != "concurrency"

    @property
    def default_num_requests(self) -> int:
        """Enough for the median; percentiles beyond it want more. Of a trace: all of it, so this is no bound."""
        if self.kind == "concurrency":
            return max(16, 4 * int(self.value))
        return max(100, int(30 * self.value))

    @property
    def default_num_warm_up(self) -> int:
        """Requests until the service is as full as it will be, about. Of a trace everything counts."""
        return {"concurrency": int(self.value), "rate": 10, "trace": 0}[self.kind]


def arrival_times_s(requests_per_s: float, burstiness: float, random: Random) -> Iterator[float]:
    """Seconds since the start of one request after another, without end; gaps are gamma distributed."""
    time_s = 0.0
    while True:
        time_s += random.gammavariate(burstiness, 1 / (requests_per_s * burstiness))
        yield time_s


def trace_times_s(entries: Sequence[TraceEntry], speed: float) -> Iterator[float]:
    """Seconds since the first of a trace that is played `speed` times as fast."""
    first_s = entries[0].time_s
    return ((entry.time_s - first_s) / speed for entry in entries)


def parse_levels(kind: LevelKind, text: str, *, burstiness: float = 1.0) -> list[Level]:
    """Numbers with commas between them. Raises ConfigError."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{kind} {text!r} is no list of numbers such as 1,4,16") from None
    return [Level(kind, value, burstiness) for value in dict.fromkeys(values)]
