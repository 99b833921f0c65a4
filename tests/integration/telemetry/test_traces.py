"""Spans of real requests, as a real OTLP collector gets them."""

from dataclasses import dataclass

import grpc.aio
import pytest
import pytest_asyncio

from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.otlp_collector import OtlpCollector, ReceivedSpan

TRACE_ID, OTHER_TRACE_ID = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
PROMPT = "a small fish"
CALLER_SPAN = "b7ad6b7169203331"
SPECULATES = {"speculation": {"mode": pb.SPECULATION_MODE_ON}}


def metadata(trace_id: str, flags: str) -> tuple[tuple[str, str], ...]:
    return (("traceparent", f"00-{trace_id}-{CALLER_SPAN}-{flags}"),)


@dataclass(frozen=True)
class Traced:
    """What came of a request with every round traced, of one that failed and one that was left."""

    summary: pb.Summary
    spans: list[ReceivedSpan]
    """Of the first."""
    failed: list[ReceivedSpan]
    """The roots of the other two, by their start."""
    all: list[ReceivedSpan]

    def named(self, name: str) -> list[ReceivedSpan]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_ns)

    @property
    def root(self) -> ReceivedSpan:
        (root,) = [span for span in self.spans if span.parent_id == CALLER_SPAN]
        return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(run_stack) -> Traced:
    async with OtlpCollector() as collector:
        config = TelemetryConfig(otlp_endpoint=collector.endpoint, max_round_spans=10**6)
        async with run_stack(config) as stack:
            answer = await stack.ask(PROMPT, metadata(TRACE_ID, "01"), temperature=0.5, seed=3, **SPECULATES)
            await stack.ask(PROMPT, metadata(OTHER_TRACE_ID, "00"), **SPECULATES)
            with pytest.raises(grpc.aio.AioRpcError):
                await stack.ask(stop_token_ids=[2**31])
            async with stack.call(max_tokens=2000) as call:
                await call.read()
                call.cancel()
        spans = [span for span in collector.spans if span.trace_id == TRACE_ID]
        failed = sorted((span for span in collector.spans if not span.parent_id), key=lambda span: span.start_ns)
        return Traced(answer.summary, spans, failed, collector.spans)


def test_a_request_is_one_trace_from_its_caller_to_the_replicas(traced) -> None:
    root = traced.root
    assert root.service == "pilotfish-orchestrator"
    assert root.name == f"text_completion {traced.summary.model_id}"
    replicas = {span.service: span for span in traced.spans if span.name.endswith(" sequence")}
    assert replicas.keys() == {"pilotfish-target", "pilotfish-draft"}
    assert {span.parent_id for span in replicas.values()} == {root.span_id}
    assert replicas["pilotfish-target"].attributes["pilotfish.num_tokens"] == 40
    for span in replicas.values():
        assert root.start_ns <= span.start_ns <= span.end_ns


def test_the_root_says_what_was_asked_and_what_came_of_it(traced) -> None:
    root, summary = traced.root, traced.summary
    expected = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "pilotfish",
        "gen_ai.request.max_tokens": 40,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": "3",
        "gen_ai.response.id": summary.request_id,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": summary.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": 40,
        "pilotfish.speculation.num_rounds": summary.speculation.num_rounds,
        "pilotfish.speculation.num_accepted_tokens": summary.speculation.num_accepted_tokens,
        "pilotfish.speculation.level": "token",
        "pilotfish.speculation.lossy": False,
        "pilotfish.emulated": True,
    }
    assert {name: root.attributes[name] for name in expected} == expected
    assert not root.is_error
    assert root.duration_ns == summary.timings.total_time_ns


def test_queue_and_prefill_come_before_the_first_token(traced) -> None:
    (queue,), (prefill,), timings = traced.named("queue"), traced.named("prefill"), traced.summary.timings
    assert queue.parent_id == prefill.parent_id == traced.root.span_id
    assert queue.start_ns == traced.root.start_ns
    assert queue.duration_ns == timings.queue_time_ns
    assert queue.duration_ns + prefill.duration_ns == timings.time_to_first_token_ns


def test_the_parts_of_a_round_add_up_to_it(traced) -> None:
    rounds, speculation = traced.named("round"), traced.summary.speculation
    assert len(rounds) == speculation.num_rounds > 3
    num_accepted = sum(int(span.attributes["pilotfish.num_accepted_tokens"]) for span in rounds)
    assert num_accepted == speculation.num_accepted_tokens
    for span in rounds:
        parts = [part for part in traced.spans if part.parent_id == span.span_id]
        parts.sort(key=lambda part: (part.start_ns, part.end_ns))
        assert sorted(part.name for part in parts) == ["network", "propose", "verify"]
        assert parts[0].start_ns == span.start_ns
        assert parts[-1].end_ns == span.end_ns
        assert sum(part.duration_ns for part in parts) == span.duration_ns
    numbers = [span.attributes["pilotfish.round"] for span in (*rounds, *traced.named("decode"))]
    assert sorted(numbers) == list(range(len(numbers)))


def test_a_request_that_fails_and_one_that_is_left_say_so(traced) -> None:
    assert [root.attributes.get("error.type") for root in traced.failed] == ["invalid_argument", "cancelled"]
    assert all(root.is_error for root in traced.failed)
    assert "stop_token_ids" in traced.failed[0].message


def test_a_caller_that_does_not_record_its_trace_is_not_overruled(traced) -> None:
    assert OTHER_TRACE_ID not in {span.trace_id for span in traced.all}


async def test_sampled_rounds_are_few_and_from_all_over_the_request(collector, run_stack) -> None:
    config = TelemetryConfig(otlp_endpoint=collector.endpoint, trace_sampling=0.0, max_round_spans=6)
    async with run_stack(config) as stack:
        answer = await stack.ask(PROMPT, metadata(TRACE_ID, "01"), max_tokens=300, **SPECULATES)
        await stack.ask()
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}, "sampling is the caller's, or else 0"
    spans = [*collector.named("round"), *collector.named("decode")]
    assert 3 <= len(spans) <= 6
    assert max(int(span.attributes["pilotfish.round"]) for span in spans) > answer.speculation.num_rounds / 2 > 10


async def test_a_trace_says_what_was_lossy(collector, run_stack) -> None:
    steps = {"mode": pb.SPECULATION_MODE_ON, "level": "step", "step_max_tokens": 8, "step_threshold": 0}
    async with run_stack(TelemetryConfig(otlp_endpoint=collector.endpoint, max_round_spans=10**6)) as stack:
        answer = await stack.ask(PROMPT, max_tokens=40, speculation=steps)
    (root,) = [span for span in collector.spans if not span.parent_id]
    stats = answer.speculation
    assert stats.num_accepted_steps == stats.num_steps > 0
    expected = {"level": "step", "lossy": True, "num_steps": stats.num_steps, "num_accepted_steps": stats.num_steps}
    assert {name: root.attributes[f"pilotfish.speculation.{name}"] for name in expected} == expected
    spans = [*collector.named("round"), *collector.named("decode")]
    assert sum(int(span.attributes["pilotfish.num_tokens"]) for span in spans) == len(answer.token_ids)
