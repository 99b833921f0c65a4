"""Families of speculative decoding: vLLM's counters, the controller's decisions, and drafting ahead."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from orchestrator.control.reasons import Reason
from orchestrator.control.replica_state import ControlState
from orchestrator.drafting.speculation_cache import AheadCounters
from orchestrator.request_telemetry.statistics import RequestTotals
from pilotfish.telemetry.families import counter, labelled_counter


def speculation_families(totals: RequestTotals, control: ControlState, ahead: AheadCounters) -> Iterator[Metric]:
    """Of all requests, those that still run included."""
    yield counter("spec_decode_num_drafts", "Drafts verified.", totals.num_rounds)
    yield counter("spec_decode_num_draft_tokens", "Draft tokens verified.", totals.num_draft_tokens)
    yield counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", totals.num_accepted_tokens)
    yield labelled_counter(
        "spec_decode_num_accepted_tokens_per_pos",
        "Drafts of which the token at this position was accepted.",
        "position",
        {str(position): count for position, count in enumerate(totals.num_accepted_per_position)},
    )
    yield counter("spec_decode_num_plain_tokens", "Output tokens decoded without a draft.", totals.num_plain_tokens)
    yield counter(
        "spec_decode_missed_deadlines", "Proposals that came too late for their round.", totals.num_missed_deadlines
    )
    yield from _control_families(control)
    yield from _ahead_families(ahead)


def _control_families(control: ControlState) -> Iterator[Metric]:
    decisions = {reason.value: control.num_decisions[reason] for reason in Reason}
    yield labelled_counter("spec_decode_decisions", "Decisions of the controller, by reason.", "reason", decisions)
    yield labelled_counter(
        "spec_decode_rounds",
        "Rounds by the draft tokens that they asked for; 0: runs of plain decoding.",
        "num_draft_tokens",
        {str(number): count for number, count in sorted(control.num_rounds_by_k.items())},
    )
    switches = {"on": control.num_switches[True], "off": control.num_switches[False]}
    yield labelled_counter("spec_decode_switches", "Times that speculation went on or off.", "state", switches)


def _ahead_families(ahead: AheadCounters) -> Iterator[Metric]:
    results = {
        "hit": ahead.num_hits,
        "late_hit": ahead.num_late_hits,
        "miss": ahead.num_misses - ahead.num_late_hits,
    }
    yield labelled_counter(
        "draft_ahead_rounds",
        "Rounds after drafting ahead: the draft was there before it was asked for, came while it was, or not at all.",
        "result",
        results,
    )
    yield counter("draft_ahead_tokens", "Draft tokens made ahead.", ahead.num_prepared_tokens)
    yield counter("draft_ahead_wasted_tokens", "Of these, those of no use.", ahead.num_wasted_tokens)
    yield counter("draft_ahead_stale_drafts", "Drafts made ahead that came after their round.", ahead.num_stale_drafts)
    yield counter("draft_ahead_hidden_seconds", "Drafting time that nobody waited for.", ahead.hidden_s)
