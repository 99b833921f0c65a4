"""Families of the replicas behind the orchestrator, as they report and as it sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from orchestrator.replicas.circuit import CIRCUIT_STATES
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.replicas.routing import kv_usage
from pilotfish.telemetry.families import counter, gauge, info, labelled_counter, labelled_gauge
from pilotfish.types import BLOCK_SIZE, LoadReport

_LABELS = ("pool", "replica")
_Key = tuple[str, ...]


def fleet_families(targets: ReplicaPool, drafts: ReplicaPool) -> Iterator[Metric]:
    """Families of both pools."""
    links: dict[_Key, ReplicaLink] = {("target", link.replica_id): link for link in targets.links}
    links |= {("draft", link.replica_id): link for link in drafts.links}
    connected = {"target": targets.num_connected, "draft": drafts.num_connected}
    yield labelled_gauge("num_replicas_connected", "Replicas of a pool.", "pool", connected)
    yield from _connections(links)
    yield from _loads({key: link for key, link in links.items() if link.is_connected})
    counters = targets.router.counters
    routed = {"prefix": counters.num_by_prefix, "load": counters.num_by_load}
    yield labelled_counter(
        "routed_sequences",
        "Sequences that went where their prefix is cached, or to the least loaded target replica.",
        "policy",
        routed,
    )


class FleetCounters:
    """What replicas count from their own start, summed over all since each was first seen here: no sum falls when one
    leaves."""

    def __init__(self) -> None:
        self.num_preemptions = self.num_steps = self.num_rows = 0
        self._last: dict[str, LoadReport] = {}

    def update(self, links: Sequence[ReplicaLink]) -> None:
        # A link that is down, or has not heard from its replica yet, has a report of zeros.
        latest = {link.replica_id: link.load for link in links if link.load.num_kv_blocks_total}
        for name, load in latest.items():
            last = self._last.get(name, load)
            self.num_preemptions += max(0, load.num_preemptions - last.num_preemptions)
            self.num_steps += max(0, load.num_steps - last.num_steps)
            self.num_rows += max(0, load.num_rows - last.num_rows)
        known = {link.replica_id for link in links}
        self._last = {name: load for name, load in (self._last | latest).items() if name in known}


def cache_families(targets: Sequence[ReplicaLink], counters: FleetCounters) -> Iterator[Metric]:
    """The target pool as if it were one engine, with vLLM's names, for its dashboards and for the Gateway API's
    endpoint picker."""
    loads = [link.load for link in targets if link.is_connected]
    num_used, num_blocks = (sum(map(attrgetter(f"num_kv_blocks_{what}"), loads)) for what in ("used", "total"))
    usage = num_used / num_blocks if num_blocks else 0.0
    yield gauge("kv_cache_usage_perc", "Share of all target replicas' KV blocks in use, from 0 to 1.", usage)
    counters.update(targets)
    yield counter(
        "num_preemptions", "Sequences whose KV blocks went to others, of all replicas.", counters.num_preemptions
    )
    # Its dashboards ask for the rates of count and sum alone.
    tokens = HistogramMetricFamily("iteration_tokens_total", "Token rows of an engine's step, of all replicas.")
    tokens.add_metric([], [("+Inf", counters.num_steps)], counters.num_rows)
    yield tokens
    cache = {"block_size": str(BLOCK_SIZE), "num_gpu_blocks": str(num_blocks)}
    yield info("cache_config", "The KV cache of all target replicas.", cache)
    # The endpoint picker takes a server without it for broken. The value is when it was true.
    labels = ("max_lora", "running_lora_adapters", "waiting_lora_adapters")
    now: dict[_Key, float] = {("0", "", ""): time.time()}
    yield labelled_gauge("lora_requests_info", "There are no adapters.", labels, now)


def _connections(links: dict[_Key, ReplicaLink]) -> Iterator[Metric]:
    connected = {key: link.is_connected for key, link in links.items()}
    healthy = {key: link.is_healthy for key, link in links.items()}
    circuits = {(*key, state): link.circuit_state == state for key, link in links.items() for state in CIRCUIT_STATES}
    yield labelled_gauge("replica_connected", "Whether a replica is connected.", _LABELS, connected)
    yield labelled_gauge(
        "replica_healthy", "Whether it takes new sequences: connected, not draining, not failing.", _LABELS, healthy
    )
    yield labelled_gauge(
        "replica_circuit", "1 for the state that the replica's circuit breaker is in.", (*_LABELS, "state"), circuits
    )


def _loads(links: dict[_Key, ReplicaLink]) -> Iterator[Metric]:
    def each(name: str, text: str, value: Callable[[ReplicaLink], float]) -> Metric:
        return labelled_gauge(name, text, _LABELS, {key: value(link) for key, link in links.items()})

    yield each("replica_sequences", "Sequences of this orchestrator on a replica.", lambda link: link.num_sequences)
    yield each(
        "replica_num_requests_running",
        "Sequences of all orchestrators that hold KV blocks on it.",
        lambda link: link.load.num_sequences_running,
    )
    yield each(
        "replica_num_requests_waiting", "Those that wait for blocks.", lambda link: link.load.num_sequences_waiting
    )
    yield each(
        "replica_kv_cache_usage_perc",
        "Share of its KV blocks in use, from 0 to 1.",
        lambda link: kv_usage(link.load),
    )
    yield each("replica_step_seconds", "Duration of its last engine step.", lambda link: link.load.step_time_ns / 1e9)
    yield each("replica_step_tokens", "Token rows of that step.", lambda link: link.load.num_step_tokens)
    yield each(
        "replica_drafter_version",
        "Version of the head that drafts on it; 0: the configured one, or none.",
        lambda link: link.load.drafter_version,
    )
    preemptions = {key: link.load.num_preemptions for key, link in links.items()}
    yield labelled_counter(
        "replica_num_preemptions", "Sequences whose KV blocks went to others, since it started.", _LABELS, preemptions
    )
    deaths = {key: link.load.num_grammar_deaths for key, link in links.items()}
    yield labelled_counter("replica_grammar_compiler_deaths", "Grammars that its compiler died of.", _LABELS, deaths)
