"""What a target or draft replica reports to Prometheus: its engine's load, and what it answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

import pilotfish
from pilotfish.rpc.frames import Service
from pilotfish.rpc.replica.observer import ReplicaCounters
from pilotfish.telemetry.families import counter, gauge, info, labelled_counter
from pilotfish.types import LoadReport

if TYPE_CHECKING:
    from pilotfish.rpc.replica.stream_server import StreamServer


class ReplicaCollector:
    """See the module. Safe to read from any thread: it reads numbers and values that never change."""

    def __init__(self, service: Service, streams: StreamServer) -> None:
        self._service = service
        self._streams = streams

    def model_name(self) -> str:
        return self._streams.welcome.model.model_id

    def collect(self) -> Iterator[Metric]:
        welcome, load = self._streams.welcome, self._streams.load
        facts = {
            "version": pilotfish.__version__,
            "service": self._service,
            "replica": welcome.replica_id,
            "emulated": str(welcome.model.emulated).lower(),
        }
        if welcome.model.proposer:
            facts["proposer"] = welcome.model.proposer
        yield info("engine_build", "What runs here.", facts)
        yield gauge("engine_peers", "Orchestrators that are connected.", self._streams.num_connections)
        yield gauge("engine_draining", "Whether it takes no new sequences.", load.draining)
        yield from _load(load)
        counters = self._streams.observer.counters
        yield from _sequences(counters)
        yield from (_verified(counters) if self._service == "target" else _proposed(counters))


def _load(load: LoadReport) -> Iterator[Metric]:
    usage = load.num_kv_blocks_used / load.num_kv_blocks_total if load.num_kv_blocks_total else 0.0
    yield gauge("engine_num_requests_running", "Sequences that hold KV blocks.", load.num_sequences_running)
    yield gauge("engine_num_requests_waiting", "Sequences that wait for blocks.", load.num_sequences_waiting)
    yield gauge("engine_kv_cache_usage_perc", "Share of the KV blocks in use, from 0 to 1.", usage)
    yield counter("engine_num_preemptions", "Sequences whose blocks went to others.", load.num_preemptions)
    yield counter("engine_grammar_compiler_deaths", "Grammars that its compiler died of.", load.num_grammar_deaths)
    yield gauge("engine_step_seconds", "Duration of the last step.", load.step_time_ns / 1e9)
    yield gauge("engine_step_tokens", "Token rows of the last step.", load.num_step_tokens)
    yield counter("engine_prefill_seconds", "By how much prefills made steps longer.", load.prefill_time_ns / 1e9)
    yield gauge(
        "engine_step_decoding", "Sequences that decoded, verified or proposed in it.", load.num_sequences_decoding
    )


def _sequences(counters: ReplicaCounters) -> Iterator[Metric]:
    yield counter("engine_sequences", "Sequences opened.", counters.num_sequences)
    yield counter("engine_prompt_tokens", "Their tokens when they were opened.", counters.num_prompt_tokens)
    yield counter(
        "engine_prefix_cache_queries", "The same, looked for in the prefix cache.", counters.num_prompt_tokens
    )
    yield counter("engine_prefix_cache_hits", "Of these, those found.", counters.num_cached_tokens)
    yield labelled_counter("engine_sequence_errors", "Items that the engine refused, by code.", "code", counters.errors)


def _verified(counters: ReplicaCounters) -> Iterator[Metric]:
    yield counter("engine_generation_tokens", "Output tokens.", counters.num_output_tokens)
    yield counter("engine_spec_decode_num_drafts", "Drafts verified.", counters.num_drafts)
    yield counter("engine_spec_decode_num_draft_tokens", "Draft tokens verified.", counters.num_draft_tokens)
    yield counter("engine_spec_decode_num_accepted_tokens", "Draft tokens accepted.", counters.num_accepted_tokens)


def _proposed(counters: ReplicaCounters) -> Iterator[Metric]:
    yield counter("engine_proposals", "Proposals made.", counters.num_proposals)
    yield counter("engine_proposed_tokens", "Draft tokens in them.", counters.num_proposed_tokens)
    yield counter("engine_ahead_tokens", "Draft tokens made ahead.", counters.num_ahead_tokens)
