"""Families of the request queue: who is served, who waits, who was turned away."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from orchestrator.requests.request_queue import RequestQueue
from pilotfish.telemetry.families import counter, gauge, labelled_counter


def queue_families(request_queue: RequestQueue) -> Iterator[Metric]:
    """Of the fair queue in front of the targets."""
    counters = request_queue.counters
    yield gauge("num_requests_running", "Requests that are served now.", request_queue.num_running)
    yield gauge("num_requests_waiting", "Requests that wait for their turn.", request_queue.num_waiting)
    yield counter("requests_admitted", "Requests that got their turn.", counters.num_admitted)
    yield counter("requests_queued", "Requests that had to wait for it.", counters.num_queued)
    yield counter("admission_wait_seconds", "Time waited for a turn, of those that got it.", counters.queue_time_s)
    turned_away = {
        "queue_full": counters.num_refused,
        "queue_timeout": counters.num_timed_out,
        "deadline": counters.num_expired,
        "abandoned": counters.num_abandoned,
    }
    yield labelled_counter(
        "requests_rejected",
        "Requests that never got their turn: the queue was full, max_queue_time_s or their deadline passed, or they "
        "were cancelled.",
        "reason",
        turned_away,
    )
