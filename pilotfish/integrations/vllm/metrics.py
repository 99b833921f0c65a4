"""What the proposer tells Prometheus, under the orchestrator's names where it means the same."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import pilotfish
from orchestrator.metrics.ahead import ahead_families
from orchestrator.metrics.fleet import replica_families
from orchestrator.replicas.pool import ReplicaPool
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.telemetry.families import by_label, counter, info, labelled_counter


class ProposerCollector(Collector):
    """Reads numbers of other threads: each is one, whole."""

    def __init__(self, model_name: str, counters: ProposerCounters, pool: ReplicaPool) -> None:
        self._model_name = model_name
        self._counters = counters
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        counters, acceptance = self._counters, self._counters.acceptance
        facts = {"version": pilotfish.__version__, "model_name": self._model_name, "emulated": "false"}
        yield info("build", "What runs here.", facts)
        yield counter("spec_decode_num_drafts", "Drafts verified.", acceptance.num_rounds)
        yield counter("spec_decode_num_draft_tokens", "Draft tokens verified.", acceptance.num_draft_tokens)
        yield counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", acceptance.num_accepted_tokens)
        yield labelled_counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Drafts of which the token at this position was accepted.",
            ("position",),
            by_label((str(at), count) for at, count in enumerate(acceptance.num_accepted_tokens_per_position)),
        )
        yield counter(
            "spec_decode_num_plain_tokens", "Output tokens decoded without a draft.", counters.num_plain_tokens
        )
        yield counter(
            "spec_decode_missed_deadlines", "Drafts that came too late for their step.", counters.num_missed_deadlines
        )
        yield counter(
            "spec_decode_late_drafts",
            "Drafts too late for their step, whose rest served a later one.",
            counters.num_late_drafts,
        )
        yield counter("spec_decode_probes", "Steps that asked without waiting, after a miss.", counters.num_probes)
        yield counter(
            "spec_decode_shadow_drafts", "Drafts compared with what vLLM decoded itself.", counters.num_shadow_drafts
        )
        yield counter("spec_decode_pauses", "Times that drafts were found not to pay.", counters.num_pauses)
        yield counter("proposer_faults", "Steps without drafts for a fault of the proposer.", counters.num_faults)
        yield counter("draft_sequences", "Sequences opened on draft replicas.", counters.num_sequences)
        yield from ahead_families(counters.ahead)
        yield from replica_families({("draft", link.replica_id): link for link in self._pool.links})
