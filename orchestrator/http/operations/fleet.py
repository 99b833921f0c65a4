"""GET /fleet: replicas, load, what the controller does and why, and how often the caches help, for people and pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pilotfish
from orchestrator.control.replica_state import ControlState, ProposerState
from orchestrator.http.completions.served_model import connected_model
from orchestrator.http.exchange import Exchange, Handler
from orchestrator.inference import InferenceService
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.routing import kv_usage
from orchestrator.request_telemetry.statistics import RequestTotals
from orchestrator.requests.kind import Kind
from pilotfish.config import SpeculationConfig
from pilotfish.drafter_registry import LOOKUPS


def fleet_endpoint(service: InferenceService, defaults: SpeculationConfig) -> Handler:
    """GET /fleet. defaults: what a request gets that does not say how to speculate."""

    async def fleet(exchange: Exchange) -> None:
        model = connected_model(service)
        body = {
            "version": pilotfish.__version__,
            # Empty: no target replica is connected.
            "model": "" if model is None else model.model_id,
            "emulated": model is not None and model.emulated,
            "defaults": {
                "mode": defaults.mode,
                "proposer": defaults.proposer,
                "num_speculative_tokens": defaults.default_draft_tokens,
            },
            # Those that can be had now.
            "proposers": list(_proposers(service)),
            # Of a round; 0: no target replica is connected.
            "max_draft_tokens": service.targets.max_draft_tokens,
            "requests": _requests(service),
            "kinds": _kinds(service.statistics.totals),
            "controller": _controller(service.sessions.control, defaults.default_draft_tokens),
            "caches": _caches(service),
            "drafters": _drafters(service.sessions.control),
            "targets": [_replica(link) for link in service.targets.links],
            "drafts": [_replica(link) for link in service.drafts.links],
        }
        await exchange.reply(body)

    return fleet


def _proposers(service: InferenceService) -> Iterator[str]:
    if service.drafts.num_connected:
        yield "draft"
    yield from LOOKUPS
    yield from sorted({link.model.proposer for link in service.targets.links if link.is_connected} - {""})


def _replica(link: ReplicaLink) -> dict[str, Any]:
    """A replica as it reports, and as this orchestrator sees it."""
    load = link.load
    return {
        "replica_id": link.replica_id,
        "address": link.address,
        "is_connected": link.is_connected,
        # Takes new sequences: connected, not draining, not failing.
        "is_healthy": link.is_healthy,
        # closed, half_open or open.
        "circuit": link.circuit_state,
        # Why it cannot be used; empty if it can.
        "problem": link.problem,
        # Of a draft replica; of a target replica the drafter beside it.
        "proposer": link.model.proposer if link.is_connected else "",
        # Of the weights of that drafter, if it is a head; 0: the configured ones.
        "drafter_version": load.drafter_version,
        # Of this orchestrator.
        "num_sequences": link.num_sequences,
        # Of all orchestrators, as far as they hold KV blocks.
        "num_sequences_running": load.num_sequences_running,
        "num_sequences_waiting": load.num_sequences_waiting,
        # 0: not connected.
        "max_sequences": link.limits.max_sequences if link.is_connected else 0,
        # Share of its KV blocks in use, from 0 to 1.
        "kv_cache_usage": kv_usage(load),
        # Duration of its last engine step, and token rows of that step.
        "step_ms": load.step_time_ns / 1e6,
        "num_step_tokens": load.num_step_tokens,
        "num_preemptions": load.num_preemptions,
    }


def _requests(service: InferenceService) -> dict[str, int]:
    """This orchestrator's requests."""
    statistics, totals = service.statistics, service.statistics.totals
    return {
        "num_running": service.request_queue.num_running,
        "num_waiting": service.request_queue.num_waiting,
        "num_finished": statistics.outcomes.total(),
        "num_failed": statistics.failures.total(),
        "num_output_tokens": totals.num_output_tokens,
        "num_draft_tokens": totals.num_draft_tokens.total(),
        "num_accepted_tokens": totals.num_accepted_tokens.total(),
    }


def _kinds(totals: RequestTotals) -> list[dict[str, Any]]:
    """Acceptance by kind of request, since the start; of kinds that were drafted for."""
    return [
        {
            "kind": kind.value,
            "num_draft_tokens": totals.num_draft_tokens[kind],
            "num_accepted_tokens": totals.num_accepted_tokens[kind],
        }
        for kind in Kind
        if totals.num_draft_tokens[kind]
    ]


def _controller(control: ControlState, num_positions: int) -> dict[str, Any]:
    """What was decided, by all requests."""
    latest = control.latest_reason
    return {
        # Its identifier; empty before the first decision.
        "latest_reason": "" if latest is None else latest.value,
        "latest_text": "" if latest is None else latest.text,
        "states": [
            {"replica_id": replica_id, "proposer": name, **_state(proposer, replica.num_decoding, num_positions)}
            for replica_id, replica in control.replicas.items()
            for name, proposer in replica.proposers.items()
        ],
        # Since the start, the most frequent first.
        "decisions": [
            {"reason": reason.value, "text": reason.text, "count": count}
            for reason, count in control.num_decisions.most_common()
        ],
    }


def _state(proposer: ProposerState, load: int, num_positions: int) -> dict[str, Any]:
    """Whether requests in mode `auto` speculate on one target replica with one proposer."""
    return {
        "state": {True: "on", False: "off", None: "undecided"}[proposer.gate.is_open],
        "num_switches": proposer.gate.num_switches,
        # What a token takes there now without speculation; 0: not measured yet.
        "plain_token_ms": proposer.costs.plain_s(load, load) * 1e3,
        # The best K by acceptance, step costs and what else a round takes; 0: none, or the target drafts by itself.
        "num_draft_tokens": proposer.num_draft_tokens,
        # Speed over plain decoding that is expected of it, or of the target's own drafts by the time of their tokens;
        # null: nothing is known yet, or no draft is allowed.
        "expected_gain": proposer.expected_gain,
        # The same of the sequences that drafted last, as it was; null: none has.
        "measured_gain": proposer.measured_gain.value if proposer.measured_gain.weight else None,
        # Expected probability that a draft token stands if those before it do, by position.
        "acceptance": proposer.acceptance.probabilities(num_positions),
    }


def _drafters(control: ControlState) -> list[dict[str, Any]]:
    """Acceptance of each proposer over time, by minute and version of its weights, oldest first."""
    unix_s = time.time() - time.monotonic()
    return [
        {
            "proposer": proposer,
            "points": [
                {
                    # Unix time in seconds, of the first of the minute's rounds.
                    "at": unix_s + point.begin_s,
                    # 0: the configured weights, or a drafter that does not learn.
                    "drafter_version": point.version,
                    "num_rounds": point.num_rounds,
                    # Output tokens of a round.
                    "acceptance_length": point.acceptance_length,
                }
                for point in acceptance.versions.points
            ],
        }
        for proposer, acceptance in control.acceptance.items()
    ]


def _caches(service: InferenceService) -> dict[str, dict[str, int]]:
    """How often what was prepared or kept was of use."""
    totals, routed, ahead = (
        service.statistics.totals,
        service.targets.router.counters,
        service.sessions.predraft.counters,
    )
    return {
        # Prompt tokens found in a target's prefix cache.
        "prefix_tokens": _hit_rate(totals.num_cached_tokens, totals.num_prompt_tokens),
        # Sequences that were sent where their prefix was cached.
        "prefix_routing": _hit_rate(routed.num_by_prefix, routed.num_by_prefix + routed.num_by_load),
        # Rounds whose draft was made while the target verified the one before.
        "drafts_ahead": _hit_rate(ahead.num_hits, ahead.num_hits + ahead.num_misses),
    }


def _hit_rate(num_hits: int, num_lookups: int) -> dict[str, int]:
    return {"num_hits": num_hits, "num_lookups": num_lookups}
