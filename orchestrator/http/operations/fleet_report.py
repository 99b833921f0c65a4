"""What GET /fleet tells."""

from __future__ import annotations

from typing import Literal

import msgspec

from orchestrator.replicas.circuit import CircuitState
from orchestrator.requests.request import Mode


class ReplicaState(msgspec.Struct, kw_only=True):
    """A replica as it reports, and as this orchestrator sees it."""

    replica_id: str
    address: str
    is_connected: bool
    is_healthy: bool
    """Takes new sequences: connected, not draining, not failing."""
    circuit: CircuitState
    problem: str
    """Why it cannot be used; empty if it can."""
    proposer: str = ""
    """Of a draft replica; of a target replica the drafter beside it."""
    num_sequences: int
    """Of this orchestrator."""
    num_sequences_running: int
    """Of all orchestrators, as far as they hold KV blocks."""
    num_sequences_waiting: int
    max_sequences: int
    """0: not connected."""
    kv_cache_usage: float
    """Share of its KV blocks in use, from 0 to 1."""
    step_ms: float
    """Duration of its last engine step."""
    num_step_tokens: int
    """Token rows of that step."""
    num_preemptions: int


class ControllerState(msgspec.Struct, kw_only=True):
    """Whether requests in mode `auto` speculate on one target replica with one proposer."""

    replica_id: str
    proposer: str
    state: Literal["on", "off", "undecided"]
    num_switches: int
    plain_token_ms: float
    """What a token takes there now without speculation; 0: not measured yet."""
    acceptance: list[float]
    """Expected probability that a draft token stands if those before it do, by position."""


class ReasonCount(msgspec.Struct):
    """Decisions since the start."""

    reason: str
    text: str
    count: int


class ControllerReport(msgspec.Struct, kw_only=True):
    """What was decided, by all requests."""

    latest_reason: str
    """Identifier; empty before the first decision."""
    latest_text: str
    states: list[ControllerState]
    decisions: list[ReasonCount]
    """The most frequent first."""


class HitRate(msgspec.Struct):
    """Of a cache."""

    num_hits: int
    num_lookups: int


class Caches(msgspec.Struct, kw_only=True):
    """How often what was prepared or kept was of use."""

    prefix_tokens: HitRate
    """Prompt tokens found in a target's prefix cache."""
    prefix_routing: HitRate
    """Sequences that were sent where their prefix was cached."""
    drafts_ahead: HitRate
    """Rounds whose draft was made while the target verified the one before."""


class Requests(msgspec.Struct, kw_only=True):
    """Of this orchestrator."""

    num_running: int
    num_waiting: int
    num_finished: int
    num_failed: int
    num_output_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int


class Defaults(msgspec.Struct, kw_only=True):
    """What a request gets that does not say how to speculate."""

    mode: Mode
    proposer: str
    num_speculative_tokens: int


class Fleet(msgspec.Struct, kw_only=True):
    """The body of the answer."""

    version: str
    model: str
    """Empty: no target replica is connected."""
    emulated: bool
    defaults: Defaults
    proposers: list[str]
    """Those that can be had now."""
    max_draft_tokens: int
    """Of a round; 0: no target replica is connected."""
    requests: Requests
    controller: ControllerReport
    caches: Caches
    targets: list[ReplicaState]
    drafts: list[ReplicaState]
