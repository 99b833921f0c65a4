"""What a simulated fleet's users saw, and what its replicas did."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pilotfish.bench.quantiles import nearest_rank
from pilotfish.planning.running import Running


class Outcome:
    """Figures of the requests that were counted."""

    def __init__(self, *, num_targets: int) -> None:
        self.num_targets = num_targets
        self.num_finished = 0
        self.num_output_tokens = 0
        self.first_token_s = array("d")
        """Time to first token, waiting in line included."""
        self.queue_s = array("d")
        """Waiting in line before a replica had room."""
        self.token_s = array("d")
        """Mean time from token to token of each answer that has more than one."""
        self.total_s = array("d")
        """From arrival to the last token."""
        self.duration_s = 0.0
        """Of the simulation."""
        self.start_s = float("inf")
        """Arrival of the first that was counted."""
        self.end_s = 0.0
        """The last end that was counted."""
        self.mean_decoding = 0.0
        """Sequences decoding on a replica while it is busy, on average: its batch."""
        self.utilisation = 0.0
        """Share of the time that replicas have something to do."""

    def add(self, running: Running, now_s: float, round_trip_s: float) -> None:
        """One was served."""
        self.num_finished += 1
        self.num_output_tokens += running.num_output_tokens
        self.queue_s.append(running.start_s - running.arrival_s)
        outside_s = running.join_s + round_trip_s
        self.first_token_s.append(running.first_token_s - running.arrival_s + outside_s)
        self.total_s.append(now_s - running.arrival_s + outside_s)
        if running.num_output_tokens > 1:
            self.token_s.append((now_s - running.first_token_s) / (running.num_output_tokens - 1))
        self.start_s = min(self.start_s, running.arrival_s)
        self.end_s = now_s

    def close(self, *, duration_s: float, busy_s: float, decoding_seconds: float) -> None:
        """The simulation is over."""
        self.duration_s = duration_s
        self.utilisation = busy_s / (duration_s * self.num_targets) if duration_s else 0.0
        self.mean_decoding = decoding_seconds / busy_s if busy_s else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests per second."""
        return self.num_output_tokens / (self.end_s - self.start_s) if self.num_finished else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    return nearest_rank(sorted(values), share)
