import pytest

from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.messages import Opened, OpenSequence, PreparedDrafts, Proposal, SequenceError, Verdict
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.telemetry.tracing import Tracing
from pilotfish.types import SamplingParams, SequenceErrorCode, Timings
from tests.support.otlp_collector import OtlpCollector

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENTS = (
    Opened(7, 2),
    Verdict(7, 3, 0, 0, (4,), timings=Timings(1_000, 2_000)),
    Verdict(7, 4, 3, 2, (5, 6, 9), timings=Timings(500, 2_500)),
    Proposal(8, 3, (1, 2)),
    PreparedDrafts(8, 3, (1, 2), (0, 1), (5, 6), (7, 8, 9, 10)),
    SequenceError(9, SequenceErrorCode.STALE, "stale"),
)


def opening(sequence_id=7, traceparent="") -> OpenSequence:
    return OpenSequence(sequence_id, (1, 2, 3), SamplingParams(), output_token_ids=(4,), traceparent=traceparent)


def test_it_counts_what_comes_back() -> None:
    observer = ReplicaObserver()
    observer.opened(opening())
    observer.add(EVENTS)
    counters = observer.counters
    assert (counters.num_sequences, counters.num_prompt_tokens, counters.num_cached_tokens) == (1, 4, 2)
    assert (counters.num_output_tokens, counters.num_drafts) == (4, 1)
    assert (counters.num_draft_tokens, counters.num_accepted_tokens) == (3, 2)
    assert (counters.num_proposals, counters.num_proposed_tokens, counters.num_ahead_tokens) == (1, 2, 4)
    assert {code for code, count in counters.errors.items() if count} == {"stale"}


async def test_a_traced_sequence_becomes_one_span_of_its_callers_trace() -> None:
    async with OtlpCollector() as collector:
        tracing = Tracing(TelemetryConfig(otlp_endpoint=collector.endpoint), "pilotfish-target")
        observer = ReplicaObserver("replica-1", "target", tracing)
        observer.opened(opening(7, TRACEPARENT))
        observer.opened(opening(8))
        assert observer.num_traced == 1
        observer.add(EVENTS)
        for sequence_id in (7, 7, 8):
            observer.closed(sequence_id)
        assert observer.num_traced == 0
        await tracing.close()
        (span,) = collector.spans
    assert (span.name, span.trace_id, span.parent_id) == ("target sequence", *TRACEPARENT.split("-")[1:3])
    assert span.attributes == {
        "pilotfish.replica": "replica-1",
        "pilotfish.num_prompt_tokens": 4,
        "pilotfish.num_cached_tokens": 2,
        "pilotfish.num_results": 2,
        "pilotfish.num_tokens": 4,
        "pilotfish.num_draft_tokens": 3,
        "pilotfish.num_accepted_tokens": 2,
        "pilotfish.queue_time_s": pytest.approx(1.5e-6),
        "pilotfish.compute_time_s": pytest.approx(4.5e-6),
    }
