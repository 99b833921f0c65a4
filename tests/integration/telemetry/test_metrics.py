"""What a scraper reads from the real services."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.requests.kind import Kind
from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.rpc.v1 import inference_pb2 as pb

SPECULATES = {"speculation": {"mode": pb.SPECULATION_MODE_ON}}


MODEL = "emulated instant"
"""On every sample of the services; tests of values leave it out."""


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """Values by name and labels."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        super().__init__(
            ((sample.name, frozenset(sample.labels.items() - {("model_name", MODEL)})), sample.value)
            for family in families
            for sample in family.samples
        )

    def value(self, name: str, **labels: str) -> float:
        return self["pilotfish_" + name, frozenset(labels.items())]

    def all(self, name: str) -> list[float]:
        return [value for (found, _), value in self.items() if found == "pilotfish_" + name]


def test_the_orchestrator_counts_requests_and_tokens(scrapes) -> None:
    before, after = Samples(scrapes.before), Samples(scrapes.after)
    assert before.value("generation_tokens_total") == before.value("spec_decode_num_drafts_total") == 0
    assert after.value("request_success_total", finished_reason="length") == 2
    assert after.value("request_failure_total", error_type="invalid_argument") == 1
    num_prompt_tokens = scrapes.plain.usage.prompt_tokens + scrapes.drafted.usage.prompt_tokens
    assert after.value("prompt_tokens_total") == num_prompt_tokens
    assert after.value("generation_tokens_total") == 80
    assert after.value("time_to_first_token_seconds_count") == 2
    assert after.value("e2e_request_latency_seconds_count") == 2
    total_s = (scrapes.plain.timings.total_time_ns + scrapes.drafted.timings.total_time_ns) / 1e9
    assert after.value("e2e_request_latency_seconds_sum") == pytest.approx(total_s)
    assert after.value("request_prefill_time_seconds_count") == after.value("request_decode_time_seconds_count") == 2
    parts = [after.value(f"request_{part}_time_seconds_sum") for part in ("queue", "prefill", "decode")]
    assert sum(parts) == pytest.approx(total_s)
    # The answers' first tokens have no token before them, nor have those that came with these.
    assert 40 < after.value("inter_token_latency_seconds_count") <= 78
    assert after.value("num_requests_running") == 0


def test_the_orchestrator_counts_drafts(scrapes) -> None:
    after, speculation = Samples(scrapes.after), scrapes.drafted.speculation
    assert after.value("spec_decode_num_drafts_total") == speculation.num_rounds > 0
    assert after.value("spec_decode_num_accepted_tokens_total") == speculation.num_accepted_tokens
    assert sum(after.all("spec_decode_num_accepted_tokens_per_pos_total")) == speculation.num_accepted_tokens
    for what, num_tokens in (("draft", speculation.num_draft_tokens), ("accepted", speculation.num_accepted_tokens)):
        by_kind = {kind: after.value(f"spec_decode_kind_{what}_tokens_total", kind=kind) for kind in Kind}
        assert by_kind == {**dict.fromkeys(Kind, 0), Kind.PLAIN: num_tokens}
    assert after.value("spec_decode_decisions_total", reason="requested") >= speculation.num_rounds
    assert after.value("spec_decode_num_plain_tokens_total") >= 40


def test_the_orchestrator_tells_of_its_replicas(scrapes) -> None:
    after, where = Samples(scrapes.after), {"pool": "target", "replica": scrapes.target_address}
    assert after.value("num_replicas_connected", pool="target") == 1
    assert after.value("num_replicas_connected", pool="draft") == 1
    assert after.value("replica_healthy", **where) == 1
    assert after.value("replica_circuit", state="closed", **where) == 1
    assert after.value("replica_circuit", state="open", **where) == 0


def test_replicas_tell_of_their_engines(scrapes) -> None:
    target, draft, speculation = Samples(scrapes.target), Samples(scrapes.draft), scrapes.drafted.speculation
    assert target.value("engine_generation_tokens_total") == 80
    assert target.value("engine_spec_decode_num_drafts_total") == speculation.num_rounds
    assert target.value("engine_sequences_total") == 2
    assert target.value("engine_peers") == 1
    num_drafted = draft.value("engine_proposed_tokens_total") + draft.value("engine_ahead_tokens_total")
    assert num_drafted >= speculation.num_draft_tokens
    for samples, service in ((target, "target"), (draft, "draft")):
        (facts,) = [dict(labels) for name, labels in samples if name == "pilotfish_engine_build_info"]
        assert (facts["service"], facts["emulated"]) == (service, "true")


async def test_a_request_that_still_runs_counts_as_far_as_it_has_come(run_stack, scrape_text) -> None:
    async with run_stack(TelemetryConfig()) as stack:
        service = stack.orchestrator.service
        running = asyncio.create_task(stack.ask(max_tokens=2000))
        while service.statistics.totals.num_output_tokens == 0:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0)
        assert Samples(await scrape_text(stack.orchestrator.http_url)).value("generation_tokens_total") > 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while service.request_queue.num_running:  # noqa: ASYNC110  # nor for this
            await asyncio.sleep(0)
        assert sum(service.statistics.failures.values()) + sum(service.statistics.outcomes.values()) == 1
