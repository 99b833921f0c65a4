"""Families of the replicas behind the orchestrator, as they report and as it sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric

from orchestrator.replicas.circuit import CIRCUIT_STATES
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.replicas.routing import kv_usage
from pilotfish.telemetry.families import labelled_counter, labelled_gauge

_LABELS = ("pool", "replica")
_Key = tuple[str, ...]


def fleet_families(targets: ReplicaPool, drafts: ReplicaPool) -> Iterator[Metric]:
    """Of both pools."""
    links: dict[_Key, ReplicaLink] = {("target", link.replica_id): link for link in targets.links}
    links |= {("draft", link.replica_id): link for link in drafts.links}
    connected = {"target": targets.num_connected, "draft": drafts.num_connected}
    yield labelled_gauge("num_replicas_connected", "Replicas of a pool.", "pool", connected)
    yield from replica_families(links)
    counters = targets.router.counters
    routed = {"prefix": counters.num_by_prefix, "load": counters.num_by_load}
    yield labelled_counter(
        "routed_sequences",
        "Sequences that went where their prefix is cached, or to the least loaded target replica.",
        "policy",
        routed,
    )


def replica_families(links: dict[tuple[str, ...], ReplicaLink]) -> Iterator[Metric]:
    """Of links by (pool, replica)."""
    yield from _connections(links)
    yield from _loads({key: link for key, link in links.items() if link.is_connected})


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
    def gauge(name: str, text: str, value: Callable[[ReplicaLink], float]) -> Metric:
        return labelled_gauge(name, text, _LABELS, {key: value(link) for key, link in links.items()})

    yield gauge("replica_sequences", "Sequences of this orchestrator on a replica.", lambda link: link.num_sequences)
    yield gauge(
        "replica_num_requests_running",
        "Sequences of all orchestrators that hold KV blocks on it.",
        lambda link: link.load.num_sequences_running,
    )
    yield gauge(
        "replica_num_requests_waiting", "Those that wait for blocks.", lambda link: link.load.num_sequences_waiting
    )
    yield gauge(
        "replica_kv_cache_usage_perc",
        "Share of its KV blocks in use, from 0 to 1.",
        lambda link: kv_usage(link.load),
    )
    yield gauge("replica_step_seconds", "Duration of its last engine step.", lambda link: link.load.step_time_ns / 1e9)
    yield gauge("replica_step_tokens", "Token rows of that step.", lambda link: link.load.num_step_tokens)
    preemptions = {key: link.load.num_preemptions for key, link in links.items()}
    yield labelled_counter(
        "replica_num_preemptions", "Sequences whose KV blocks went to others, since it started.", _LABELS, preemptions
    )
    deaths = {key: link.load.num_grammar_deaths for key, link in links.items()}
    yield labelled_counter("replica_grammar_compiler_deaths", "Grammars that its compiler died of.", _LABELS, deaths)
