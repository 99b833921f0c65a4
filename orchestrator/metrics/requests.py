"""Families of requests and their tokens, with vLLM's names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from orchestrator.request_telemetry.statistics import RequestStatistics
from pilotfish.telemetry.families import counter, labelled_counter
from pilotfish.types import FinishReason

_FINISH_REASONS = (FinishReason.STOP, FinishReason.LENGTH)
_FAILURES = ("cancelled", "invalid_argument", "resource_exhausted", "unavailable", "deadline_exceeded", "internal")
"""Told as 0 before the first: the rate of what has just appeared cannot be known."""


def request_families(statistics: RequestStatistics) -> Iterator[Metric]:
    """Of all requests that reached the API."""
    totals = statistics.totals
    finished = {reason.name.lower(): statistics.outcomes[reason] for reason in _FINISH_REASONS}
    failed = dict.fromkeys(_FAILURES, 0) | statistics.failures
    yield labelled_counter("request_success", "Answers that came to their end.", "finished_reason", finished)
    yield labelled_counter("request_failure", "Requests that did not, by gRPC status.", "error_type", failed)
    yield counter("prompt_tokens", "Prompt tokens of requests that began to be answered.", totals.num_prompt_tokens)
    yield counter("generation_tokens", "Output tokens.", totals.num_output_tokens)
    yield counter("prefix_cache_queries", "Prompt tokens looked for in a prefix cache.", totals.num_prompt_tokens)
    yield counter("prefix_cache_hits", "Prompt tokens found in a prefix cache.", totals.num_cached_tokens)
    yield counter("failovers", "Target replicas lost under requests that went on elsewhere.", totals.num_failovers)
    for histogram in statistics.histograms:
        yield from histogram.collect()
