"""What a fleet is asked to do: when requests arrive, and how long prompts and answers are."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from pilotfish.bench.load.workload import Lengths
from pilotfish.bench.text_file import read_records
from pilotfish.errors import ConfigError


class TraceEntry(msgspec.Struct, frozen=True):
    """A recorded request; other fields of the line are ignored."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    """Milliseconds since some start."""
    input_length: Annotated[int, msgspec.Meta(ge=1)]
    """Prompt tokens."""
    output_length: Annotated[int, msgspec.Meta(ge=1)]
    """Output tokens."""


def load_trace(path: Path) -> list[TraceEntry]:
    """The entries in the order of their time. Raises ConfigError, naming the line, for what cannot be used."""
    entries = [entry for _, entry in read_records(path, TraceEntry, "the trace")]
    if not entries:
        raise ConfigError(f"{path} holds no requests")
    return sorted(entries, key=lambda entry: entry.timestamp)


_NUM_DRAWN = 50_000
"""Requests of a Poisson workload before they come again: means are within 1 % for what people call a distribution."""


class Request(NamedTuple):
    """One request of a workload."""

    arrival_s: float
    """Time since the start."""
    num_prompt_tokens: int
    num_output_tokens: int

    @property
    def num_kv_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True)
class Workload:
    """Requests that come again and again, at any rate: comparisons share their luck."""

    rate: float
    """Requests per second."""
    sample: Sequence[Request]
    """Requests as they arrive at one request per second."""

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise ConfigError(f"a rate of {self.rate:g} requests/s cannot be planned for: it must be above 0")

    @cached_property
    def mean_prompt_tokens(self) -> float:
        return statistics.fmean(request.num_prompt_tokens for request in self.sample)

    @cached_property
    def mean_output_tokens(self) -> float:
        return statistics.fmean(request.num_output_tokens for request in self.sample)

    def requests(self, num_requests: int) -> Iterator[Request]:
        """The first of them, in the order of arrival."""
        for index in range(num_requests):
            lap, place = divmod(index, len(self.sample))
            request = self.sample[place]
            arrival_s = (lap * len(self.sample) + request.arrival_s) / self.rate
            yield Request(arrival_s, request.num_prompt_tokens, request.num_output_tokens)


def recorded_workload(requests: Sequence[Request], rate: float | None = None) -> Workload:
    """Requests as they once came, in the order of arrival; rate: faster or slower.

    Raises ConfigError for requests that all arrive at once.
    """
    start_s, span_s = requests[0].arrival_s, requests[-1].arrival_s - requests[0].arrival_s
    if span_s <= 0:
        raise ConfigError("a trace must hold requests that arrive at different times")
    recorded_rate = (len(requests) - 1) / span_s
    sample = [request._replace(arrival_s=recorded_rate * (request.arrival_s - start_s)) for request in requests]
    return Workload(recorded_rate if rate is None else rate, sample)


def read_workload(path: Path, rate: float | None = None) -> Workload:
    """Lines with `timestamp` (ms), `input_length`, `output_length`: the keys of the Mooncake traces.

    Raises ConfigError, naming the line, for what cannot be used.
    """
    entries = load_trace(path)
    return recorded_workload(
        [Request(entry.timestamp / 1e3, entry.input_length, entry.output_length) for entry in entries], rate
    )


def poisson_workload(rate: float, prompt_lengths: Lengths, output_lengths: Lengths) -> Workload:
    """Independent arrivals, independent lengths; the same ones each time."""
    source = random.Random(0)
    arrivals = accumulate(source.expovariate(1.0) for _ in range(_NUM_DRAWN))
    requests = [Request(arrival, prompt_lengths.draw(source), output_lengths.draw(source)) for arrival in arrivals]
    return recorded_workload(requests, rate)
