"""GET /fleet: replicas, load, what the controller does and why, and how often the caches help, for people and pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pilotfish
from orchestrator.control.replica_state import ProposerState
from orchestrator.http.completions.served_model import connected_model
from orchestrator.http.exchange import Exchange
from orchestrator.http.operations.fleet_report import (
    Caches,
    ControllerReport,
    ControllerState,
    Defaults,
    Fleet,
    HitRate,
    ReasonCount,
    ReplicaState,
    Requests,
)
from orchestrator.inference import InferenceService
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.routing import kv_usage
from pilotfish.config import SpeculationConfig
from pilotfish.speculation.lookup.lookups import LOOKUPS


class FleetApi:
    """The endpoint."""

    def __init__(self, service: InferenceService, defaults: SpeculationConfig) -> None:
        self._service = service
        self._defaults = Defaults(
            mode=defaults.mode,
            proposer=defaults.proposer,
            num_speculative_tokens=defaults.num_speculative_tokens,
        )

    async def fleet(self, exchange: Exchange) -> None:
        """GET /fleet."""
        await exchange.reply(self._snapshot())

    def _snapshot(self) -> Fleet:
        service = self._service
        model = connected_model(service)
        connected = [link for link in service.targets.links if link.is_connected]
        return Fleet(
            version=pilotfish.__version__,
            model="" if model is None else model.model_id,
            emulated=model is not None and model.emulated,
            defaults=self._defaults,
            proposers=list(_proposers(service)),
            max_draft_tokens=min((link.limits.max_draft_tokens for link in connected), default=0),
            requests=_requests(service),
            controller=_controller(service, self._defaults.num_speculative_tokens),
            caches=_caches(service),
            targets=[_replica(link) for link in service.targets.links],
            drafts=[_replica(link) for link in service.drafts.links],
        )


def _proposers(service: InferenceService) -> Iterator[str]:
    if service.drafts.num_connected:
        yield "draft"
    yield from LOOKUPS
    yield from sorted({link.model.proposer for link in service.targets.links if link.is_connected} - {""})


def _replica(link: ReplicaLink) -> ReplicaState:
    load = link.load
    return ReplicaState(
        replica_id=link.replica_id,
        address=link.address,
        is_connected=link.is_connected,
        is_healthy=link.is_healthy,
        circuit=link.circuit_state,
        problem=link.problem,
        proposer=link.model.proposer if link.is_connected else "",
        num_sequences=link.num_sequences,
        num_sequences_running=load.num_sequences_running,
        num_sequences_waiting=load.num_sequences_waiting,
        max_sequences=link.limits.max_sequences if link.is_connected else 0,
        kv_cache_usage=kv_usage(load),
        step_ms=load.step_time_ns / 1e6,
        num_step_tokens=load.num_step_tokens,
        num_preemptions=load.num_preemptions,
    )


def _requests(service: InferenceService) -> Requests:
    statistics, totals = service.statistics, service.statistics.totals
    return Requests(
        num_running=service.request_queue.num_running,
        num_waiting=service.request_queue.num_waiting,
        num_finished=statistics.outcomes.total(),
        num_failed=statistics.failures.total(),
        num_output_tokens=totals.num_output_tokens,
        num_draft_tokens=totals.num_draft_tokens,
        num_accepted_tokens=totals.num_accepted_tokens,
    )


def _controller(service: InferenceService, num_positions: int) -> ControllerReport:
    control = service.control
    counts = control.num_decisions.most_common()
    latest = control.latest_reason
    return ControllerReport(
        latest_reason="" if latest is None else latest.value,
        latest_text="" if latest is None else latest.text,
        states=[
            _controller_state(replica_id, name, proposer, replica.num_decoding, num_positions)
            for replica_id, replica in control.replicas.items()
            for name, proposer in replica.proposers.items()
        ],
        decisions=[ReasonCount(reason.value, reason.text, count) for reason, count in counts],
    )


def _controller_state(
    replica_id: str, name: str, proposer: ProposerState, load: int, num_positions: int
) -> ControllerState:
    gate = proposer.gate
    state: Literal["on", "off", "undecided"] = "on" if gate.is_open else "off"
    return ControllerState(
        replica_id=replica_id,
        proposer=name,
        state="undecided" if gate.is_open is None else state,
        num_switches=gate.num_switches,
        plain_token_ms=proposer.costs.plain_s(load) * 1e3,
        acceptance=list(proposer.acceptance.probabilities(num_positions)),
    )


def _caches(service: InferenceService) -> Caches:
    totals, routed, ahead = service.statistics.totals, service.targets.router.counters, service.ahead.counters
    return Caches(
        prefix_tokens=HitRate(totals.num_cached_tokens, totals.num_prompt_tokens),
        prefix_routing=HitRate(routed.num_by_prefix, routed.num_by_prefix + routed.num_by_load),
        drafts_ahead=HitRate(ahead.num_hits, ahead.num_hits + ahead.num_misses),
    )
