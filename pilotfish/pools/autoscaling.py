"""How many replicas a pool should have: Serve calls the policy, with what the replicas say of themselves.

Serve sees no request of ours, because none passes its proxies or handles. Replicas therefore report their load
(`load_stats`, from `record_autoscaling_stats`), and orchestrators report to targets how many requests wait.

Serve pickles the policy's class by value, with copies of this module's globals: it must refer to nothing but them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pilotfish.types import LoadReport

SEQUENCES = "sequences"
"""Open on the replica, running or waiting there."""
KV_USAGE = "kv_usage"
"""Share of the replica's KV blocks that are in use."""
WAITING_REQUESTS = "waiting_requests"
"""Waiting requests over all orchestrators, as they were reported to each replica of the pool."""

WAITING_VALID_S = 5.0
"""What an orchestrator said of its queue is forgotten after this long; it says so again every second."""


def load_stats(load: LoadReport, waiting_requests: int = 0) -> dict[str, float]:
    """A replica's report, for `LoadPolicy`."""
    total = load.num_kv_blocks_total
    return {
        SEQUENCES: float(load.num_sequences_running + load.num_sequences_waiting),
        KV_USAGE: load.num_kv_blocks_used / total if total else 0.0,
        WAITING_REQUESTS: float(waiting_requests),
    }


class WaitingRequests:
    """What the orchestrators last said of their queues."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: dict[str, tuple[int, float]] = {}

    def note(self, orchestrator_id: str, num_waiting: int) -> None:
        """An orchestrator has so many requests waiting now."""
        self._reports[orchestrator_id] = (num_waiting, self._clock() + WAITING_VALID_S)

    def total(self) -> int:
        """Waiting requests over all orchestrators that were heard of lately."""
        now = self._clock()
        self._reports = {name: report for name, report in self._reports.items() if report[1] > now}
        return sum(count for count, _ in self._reports.values())


class Context(Protocol):
    """What is needed here of ray.serve.config.AutoscalingContext."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None: ...

    @property
    def target_num_replicas(self) -> int: ...

    @property
    def config(self) -> Any: ...


class LoadPolicy:
    """Replicas for the sequences there are, or for the KV cache that they fill, whichever is more.

    A fraction is wanted where the load asks for one: Serve rounds up, keeps to the bounds and waits for the delays.
    """

    def __init__(self, *, target_kv_usage: float) -> None:
        self._target_kv_usage = target_kv_usage

    def __call__(self, context: Context) -> tuple[float, dict[str, Any]]:
        """(replicas, state to keep: none)."""
        metrics = context.aggregated_metrics or {}
        sequences = metrics.get(SEQUENCES, {})
        if not sequences:
            # A controller that has just started has heard of nobody yet.
            return context.target_num_replicas, {}
        waiting = max(metrics.get(WAITING_REQUESTS, {}).values(), default=0.0)
        by_sequences = (sum(sequences.values()) + waiting) / context.config.target_ongoing_requests
        by_kv_usage = sum(metrics.get(KV_USAGE, {}).values()) / self._target_kv_usage
        return max(by_sequences, by_kv_usage), {}
