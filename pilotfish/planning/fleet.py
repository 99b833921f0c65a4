"""A fleet under load: requests arrive, wait where no replica has room, and are served. Discrete events.

Approximations: replicas are fluids (replica.py), so that tokens of a sequence come evenly; all sequences count as of
mean length where context costs time; whole answers are reserved in the KV cache, none is ever preempted; the prefix
cache does not exist; the drafters' reading of prompts is free.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from pilotfish.bench.metrics import nearest_rank
from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.errors import ConfigError
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.replica import FleetReplica, Running
from pilotfish.planning.workload import Request


@dataclass(slots=True)
class FleetOutcome:
    """What users of a fleet saw, but for those of the warm-up, and how many were served at once."""

    first_token_s: array[float] = field(default_factory=lambda: array("d"))
    """Time to first token of each request, waiting in line included."""
    token_s: array[float] = field(default_factory=lambda: array("d"))
    """Mean time from token to token of each answer that has more than one."""
    mean_decoding: float = 0.0
    """Sequences decoding on a replica while it is busy, on average: its batch."""


class FleetSimulation:
    """A fleet of num_targets replicas that are alike. Used once."""

    def __init__(self, rates: ReplicaRates, num_targets: int, *, round_trip_s: float = 0.0, warm_up: int = 0) -> None:
        """warm_up: the first requests, so many, which are served but not counted."""
        self._rates = rates
        self._replicas = [FleetReplica(rates) for _ in range(num_targets)]
        # Dictionaries as ordered sets: equal runs choose equal replicas.
        self._by_load: list[dict[FleetReplica, None]] = [{} for _ in range(rates.model.profile.max_sequences + 1)]
        self._by_load[0] = dict.fromkeys(self._replicas)
        self._events: list[tuple[float, int, FleetReplica]] = []
        """Heap by time; those that a later event of the replica has replaced are stale."""
        self._num_events = 0
        self._queue: deque[Running] = deque()
        self._round_trip_s = round_trip_s
        self._warm_up = warm_up
        self._random = random.Random(0)
        self._outcome = FleetOutcome()

    def run(self, requests: Iterable[Request]) -> FleetOutcome:
        """Run the requests: each arrives at its time. Raises ConfigError for one that no replica can hold."""
        for number, request in enumerate(requests):
            require_room(self._rates.model.profile, request)
            self._advance(request.arrival_s)
            self._queue.append(Running(request, is_counted=number >= self._warm_up))
            self._start_queued(request.arrival_s)
        self._advance(math.inf)
        busy_s = sum(replica.busy_s for replica in self._replicas)
        self._outcome.mean_decoding = sum(replica.token_seconds for replica in self._replicas) / busy_s
        return self._outcome

    def _advance(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            now_s, _, replica = heappop(self._events)
            if now_s != replica.next_s:
                continue
            num_held = replica.num_held
            for running in replica.advance(now_s):
                if running.is_counted:
                    self._count(running, now_s)
            self._changed(replica, num_held)
            self._start_queued(now_s)

    def _start_queued(self, now_s: float) -> None:
        """Start queued requests, each on the replica that holds the fewest."""
        profile = self._rates.model.profile
        while self._queue:
            # The last to come is the cheapest to remove.
            replica = next(reversed(next(filter(None, self._by_load))))
            num_kv_tokens = replica.num_kv_tokens + self._queue[0].request.num_kv_tokens
            if replica.num_held == profile.max_sequences or num_kv_tokens > profile.kv_cache_tokens:
                return
            running = self._queue.popleft()
            # It joins when the step that runs now is over.
            running.outside_s = self._round_trip_s + self._random.random() * self._rates.step_s[replica.num_decoding]
            replica.take(running, now_s)
            self._changed(replica, replica.num_held - 1)

    def _changed(self, replica: FleetReplica, num_held_before: int) -> None:
        del self._by_load[num_held_before][replica]
        self._by_load[replica.num_held][replica] = None
        if replica.num_held:
            self._num_events += 1
            heappush(self._events, (replica.next_s, self._num_events, replica))

    def _count(self, running: Running, now_s: float) -> None:
        request = running.request
        self._outcome.first_token_s.append(running.first_token_s - request.arrival_s + running.outside_s)
        if request.num_output_tokens > 1:
            self._outcome.token_s.append((now_s - running.first_token_s) / (request.num_output_tokens - 1))


def require_room(profile: HardwareProfile, request: Request) -> None:
    """Raises ConfigError for a request that no replica can hold."""
    if request.num_kv_tokens > min(profile.kv_cache_tokens, profile.max_context_tokens):
        raise ConfigError(
            f"a request of {request.num_prompt_tokens} + {request.num_output_tokens} tokens never fits a replica of "
            f"profile {profile.name} ({profile.max_context_tokens} tokens of context, {profile.kv_cache_tokens} in the "
            "KV cache): plan shorter ones"
        )


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them do not exceed; 0 of nothing."""
    return nearest_rank(sorted(values), share) if values else 0.0


@dataclass(frozen=True, kw_only=True)
class Goals:
    """Held for a share of all requests."""

    first_token_s: float = 1.0
    """Time to first token, waiting in line included. Default: what people take for an answer at once."""
    token_s: float = 0.05
    """Time from token to token, on average over an answer. Default: 20 tokens/s, twice as fast as people read."""
    share: float = 0.95
    """Share of the requests for which each of the two goals holds."""

    def __post_init__(self) -> None:
        if self.first_token_s <= 0 or self.token_s <= 0:
            raise ConfigError("a latency goal must be above 0")
        if not 0 < self.share < 1:
            raise ConfigError(f"the share of requests that goals hold for must be between 0 and 1, not {self.share:g}")

    def are_met(self, outcome: FleetOutcome) -> bool:
        return (
            quantile(outcome.first_token_s, self.share) <= self.first_token_s
            and quantile(outcome.token_s, self.share) <= self.token_s
        )

    def __str__(self) -> str:
        first_ms, token_ms = self.first_token_s * 1e3, self.token_s * 1e3
        return f"first token within {first_ms:g} ms and {token_ms:g} ms a token for {self.share:.0%} of the requests"
