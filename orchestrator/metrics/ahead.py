"""Families of drafting ahead."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from orchestrator.drafting.speculation_cache import AheadCounters
from pilotfish.telemetry.families import by_label, counter, labelled_counter


def ahead_families(ahead: AheadCounters) -> Iterator[Metric]:
    """Of drafting ahead alone."""
    results = {
        "hit": float(ahead.num_hits),
        "late_hit": float(ahead.num_late_hits),
        "miss": float(ahead.num_misses - ahead.num_late_hits),
    }
    yield labelled_counter(
        "draft_ahead_rounds",
        "Rounds after drafting ahead: the draft was there before it was asked for, came while it was, or not at all.",
        ("result",),
        by_label(results),
    )
    yield counter("draft_ahead_tokens", "Draft tokens made ahead.", ahead.num_prepared_tokens)
    yield counter("draft_ahead_wasted_tokens", "Of these, those of no use.", ahead.num_wasted_tokens)
    yield counter("draft_ahead_stale_drafts", "Drafts made ahead that came after their round.", ahead.num_stale_drafts)
    yield counter("draft_ahead_hidden_seconds", "Drafting time that nobody waited for.", ahead.hidden_s)
