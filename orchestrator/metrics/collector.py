"""The orchestrator's metrics for Prometheus, with vLLM's names. Read them on the orchestrator's event loop."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

import pilotfish
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_state import ControlState
from orchestrator.inference import InferenceService
from orchestrator.metrics.fleet import FleetCounters, cache_families, fleet_families
from orchestrator.request_telemetry.statistics import RequestStatistics, RequestTotals
from orchestrator.requests.kind import Kind
from orchestrator.requests.request_queue import RequestQueue
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftCounters
from pilotfish.telemetry.families import counter, gauge, info, labelled_counter, labelled_gauge
from pilotfish.types import FinishReason, ModelInfo

_FINISH_REASONS = (FinishReason.STOP, FinishReason.LENGTH)
_FAILURES = ("cancelled", "invalid_argument", "resource_exhausted", "unavailable", "deadline_exceeded", "internal")
"""Failures that are reported as 0 before the first: the rate of what has just appeared cannot be known."""

_MAX_VERSIONS = 5
"""Versions of a drafter's weights that have a value: as many as are kept by default."""


class OrchestratorCollector:
    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._model: ModelInfo | None = None
        self._fleet = FleetCounters()

    def model_name(self) -> str:
        links = self._service.targets.links
        connected = next((self._service.named(link.model) for link in links if link.is_connected), None)
        self._model = connected or self._model
        return "" if self._model is None else self._model.model_id

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield self._build()
        yield from _requests(service.statistics)
        yield from _queue(service.request_queue)
        yield from _speculation(service.statistics.totals, service.sessions.control, service.sessions.predraft.counters)
        yield gauge(
            "lookup_tokens",
            "Tokens that lookups in the orchestrator index now.",
            service.sessions.lookup_budget.num_tokens,
        )
        num_refused = service.sessions.lookup_budget.num_refused
        yield counter("lookups_refused", "Requests without a lookup, as others index too much.", num_refused)
        yield from fleet_families(service.targets, service.drafts)
        yield from cache_families(service.targets.links, self._fleet)
        num_deaths = service.grammar_check.num_deaths
        yield counter("grammar_compiler_deaths", "Grammars that a compiling process died of; 400 each.", num_deaths)

    def _build(self) -> Metric:
        is_emulated = self._model is not None and self._model.emulated
        facts = {"version": pilotfish.__version__, "emulated": str(is_emulated).lower()}
        return info("build", "What runs here. model_name is empty until a target replica was met.", facts)


def _requests(statistics: RequestStatistics) -> Iterator[Metric]:
    """Families of all requests that reached the API."""
    totals = statistics.totals
    finished = {reason.name.lower(): statistics.outcomes[reason] for reason in _FINISH_REASONS}
    failed = dict.fromkeys(_FAILURES, 0) | statistics.failures
    yield labelled_counter("request_success", "Answers that came to their end.", "finished_reason", finished)
    yield labelled_counter("request_failure", "Requests that did not, by gRPC status.", "error_type", failed)
    yield counter("prompt_tokens", "Prompt tokens of requests that began to be answered.", totals.num_prompt_tokens)
    yield counter("generation_tokens", "Output tokens.", totals.num_output_tokens)
    lossy = totals.num_lossy_output_tokens
    yield counter("lossy_generation_tokens", "Output tokens of requests with lossy acceptance or steps.", lossy)
    yield counter("prefix_cache_queries", "Prompt tokens looked for in a prefix cache.", totals.num_prompt_tokens)
    yield counter("prefix_cache_hits", "Prompt tokens found in a prefix cache.", totals.num_cached_tokens)
    yield counter("failovers", "Target replicas lost under requests that went on elsewhere.", totals.num_failovers)
    for histogram in statistics.histograms:
        yield from histogram.collect()


def _queue(request_queue: RequestQueue) -> Iterator[Metric]:
    """Families of the fair queue in front of the targets."""
    counters = request_queue.counters
    yield gauge("num_requests_running", "Requests that are served now.", request_queue.num_running)
    yield gauge("num_requests_waiting", "Requests that wait for their turn.", request_queue.num_waiting)
    yield counter("requests_admitted", "Requests that got their turn.", counters.num_admitted)
    yield counter("requests_queued", "Requests that had to wait for it.", counters.num_queued)
    yield counter("admission_wait_seconds", "Time waited for a turn, of those that got it.", counters.queue_time_s)
    turned_away = {
        "queue_full": counters.num_refused,
        "queue_timeout": counters.num_timed_out,
        "deadline": counters.num_expired,
        "abandoned": counters.num_abandoned,
    }
    yield labelled_counter(
        "requests_rejected",
        "Requests that never got their turn: the queue was full, max_queue_time_s or their deadline passed, or they "
        "were cancelled.",
        "reason",
        turned_away,
    )


def _speculation(totals: RequestTotals, control: ControlState, ahead: PredraftCounters) -> Iterator[Metric]:
    """Families of speculation in all requests, those that still run included."""
    yield counter("spec_decode_num_drafts", "Drafts verified.", totals.num_rounds)
    yield counter("spec_decode_num_draft_tokens", "Draft tokens verified.", totals.num_draft_tokens.total())
    yield counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", totals.num_accepted_tokens.total())
    yield labelled_counter(
        "spec_decode_kind_draft_tokens",
        "Draft tokens verified, by kind of request.",
        "kind",
        {kind.value: totals.num_draft_tokens[kind] for kind in Kind},
    )
    yield labelled_counter(
        "spec_decode_kind_accepted_tokens",
        "Draft tokens accepted, by kind of request.",
        "kind",
        {kind.value: totals.num_accepted_tokens[kind] for kind in Kind},
    )
    yield labelled_counter(
        "spec_decode_num_accepted_tokens_per_pos",
        "Drafts of which the token at this position was accepted.",
        "position",
        {str(position): count for position, count in enumerate(totals.num_accepted_per_position)},
    )
    yield counter(
        "spec_decode_num_grammar_draft_tokens",
        "Draft tokens verified that only the request's grammar drafted.",
        totals.num_grammar_draft_tokens,
    )
    yield counter(
        "spec_decode_num_grammar_accepted_tokens", "Of these, those accepted.", totals.num_grammar_accepted_tokens
    )
    yield counter("spec_decode_num_plain_tokens", "Output tokens decoded without a draft.", totals.num_plain_tokens)
    yield counter(
        "spec_decode_missed_deadlines", "Proposals that came too late for their round.", totals.num_missed_deadlines
    )
    yield counter("spec_decode_num_steps", "Steps of reasoning that a draft model wrote.", totals.num_steps)
    yield counter("spec_decode_num_accepted_steps", "Of these, those that stood.", totals.num_accepted_steps)
    yield from _control(control)
    yield from _ahead(ahead)


def _control(control: ControlState) -> Iterator[Metric]:
    decisions = {reason.value: control.num_decisions[reason] for reason in Reason}
    yield labelled_counter("spec_decode_decisions", "Decisions of the controller, by reason.", "reason", decisions)
    yield labelled_counter(
        "spec_decode_rounds",
        "Rounds by the draft tokens that they asked for; 0: runs of plain decoding.",
        "num_draft_tokens",
        {str(number): count for number, count in sorted(control.num_rounds_by_k.items())},
    )
    gains: dict[tuple[str, ...], float] = {
        (replica_id, name): proposer.measured_gain.value
        for replica_id, replica in control.replicas.items()
        for name, proposer in replica.proposers.items()
        if proposer.measured_gain.weight
    }
    text = "Speed of the sequences that drafted last, over plain decoding."
    yield labelled_gauge("spec_decode_gain", text, ("replica", "proposer"), gains)
    lengths: dict[tuple[str, ...], float] = {
        (name, str(version)): length
        for name, acceptance in control.acceptance.items()
        for version, length in acceptance.versions.acceptance_lengths(_MAX_VERSIONS).items()
    }
    text = "Output tokens of a round that verified drafts of this version of the drafter's weights, lately."
    yield labelled_gauge("spec_decode_version_acceptance_length", text, ("proposer", "drafter_version"), lengths)
    switches = {"on": control.num_switches[True], "off": control.num_switches[False]}
    yield labelled_counter("spec_decode_switches", "Times that speculation went on or off.", "state", switches)


def _ahead(ahead: PredraftCounters) -> Iterator[Metric]:
    results = {
        "gone_on": ahead.num_gone_on,
        "hit": ahead.num_hits - ahead.num_gone_on,
        "late_hit": ahead.num_late_hits,
        "miss": ahead.num_misses - ahead.num_late_hits,
    }
    yield labelled_counter(
        "draft_ahead_rounds",
        "Rounds after drafting ahead: the target went on with the draft by itself, it was there before it was asked "
        "for, came while it was, or not at all.",
        "result",
        results,
    )
    yield counter("draft_ahead_tokens", "Draft tokens made ahead.", ahead.num_prepared_tokens)
    yield counter("draft_ahead_wasted_tokens", "Of these, those of no use.", ahead.num_wasted_tokens)
    yield counter("draft_ahead_stale_drafts", "Drafts made ahead that came after their round.", ahead.num_stale_drafts)
    yield counter("draft_ahead_hidden_seconds", "Drafting time that nobody waited for.", ahead.hidden_s)
