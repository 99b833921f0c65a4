"""Requests as they once arrived."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from pilotfish.bench.load.trace import load_trace
from pilotfish.errors import ConfigError
from pilotfish.planning.workload import Request


class TraceWorkload:
    """See Workload. Asked for more requests than it holds, it begins again."""

    def __init__(self, trace: Sequence[Request], *, rate: float | None = None) -> None:
        """trace: in the order of arrival. rate: replay it faster or slower, at so many requests per second.

        Raises ConfigError for a trace without a rate.
        """
        span_s = trace[-1].arrival_s - trace[0].arrival_s
        if span_s <= 0:
            raise ConfigError("a trace must hold requests that arrive at different times")
        # After the last comes the first again, as long after it as one follows the other on average.
        lap_s = span_s * len(trace) / (len(trace) - 1)
        self.rate = len(trace) / lap_s if rate is None else rate
        self._lap_s = len(trace) / self.rate
        start_s, pace = trace[0].arrival_s, self._lap_s / lap_s
        self._trace = [request._replace(arrival_s=pace * (request.arrival_s - start_s)) for request in trace]
        self.mean_prompt_tokens = statistics.fmean(request.num_prompt_tokens for request in trace)
        self.mean_output_tokens = statistics.fmean(request.num_output_tokens for request in trace)

    def requests(self, num_requests: int, seed: int) -> Iterator[Request]:
        del seed
        for index in range(num_requests):
            lap, place = divmod(index, len(self._trace))
            request = self._trace[place]
            yield request._replace(arrival_s=request.arrival_s + lap * self._lap_s)

    def scaled(self, factor: float) -> TraceWorkload:
        return TraceWorkload(self._trace, rate=factor * self.rate)


def read_workload(path: Path, *, rate: float | None = None) -> TraceWorkload:
    """A file of `pilotfish bench load --trace`. Raises ConfigError, naming the line, for what cannot be used."""
    entries = load_trace(path)
    return TraceWorkload(
        [Request(entry.time_s, entry.input_length, entry.output_length) for entry in entries], rate=rate
    )
