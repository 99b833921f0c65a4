"""One request as a trace: spans for the queue, the prefill and its rounds, with OpenTelemetry's names for generative
AI where there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.trace import Span

from orchestrator.requests.request import GenerationRequest
from orchestrator.rounds.round_log import RoundRecord
from pilotfish.rpc.answer import Summary
from pilotfish.telemetry.tracing import AttributeValue, Tracing

PROVIDER_NAME = "pilotfish"
_STATISTICS = (
    *("num_rounds", "num_draft_tokens", "num_accepted_tokens", "mean_acceptance_length", "num_plain_tokens"),
    *("num_grammar_draft_tokens", "num_grammar_accepted_tokens"),
    *("num_missed_deadlines", "num_steps", "num_accepted_steps", "drafter_version"),
)
_RECORDS_PER_TURN = 16
"""Rounds whose spans are made in one turn of the event loop: some 0.3 ms."""


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Times of one request, on time.monotonic_ns()'s clock."""

    arrival_ns: int
    first_token_ns: int
    """Time of the first token; arrival_ns: there was none."""
    end_ns: int
    queue_time_ns: int
    """Time from arrival to the first step of a target."""


def request_attributes(request: GenerationRequest, model_id: str, operation: str) -> dict[str, AttributeValue]:
    """What was asked for: gen_ai.request.* and how to speculate."""
    sampling = request.sampling
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDER_NAME,
        "gen_ai.request.model": model_id,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.seed": str(sampling.seed),  # may be above an attribute's 63 bits
        "pilotfish.speculation.mode": request.speculation.mode,
        "pilotfish.speculation.proposer": request.speculation.proposer,
        "pilotfish.speculation.acceptance": sampling.acceptance.name.lower(),
        "pilotfish.speculation.level": request.speculation.level,
        "pilotfish.speculation.max_draft_tokens": request.num_speculative_tokens,
    }


def summary_attributes(summary: Summary) -> dict[str, AttributeValue]:
    """What came of it: gen_ai.response.*, gen_ai.usage.* and how speculation went."""
    return {
        "gen_ai.response.id": summary.request_id,
        "gen_ai.response.model": summary.model_id,
        "gen_ai.response.finish_reasons": [summary.finish_reason.name.lower()],
        "gen_ai.usage.input_tokens": summary.num_prompt_tokens,
        "gen_ai.usage.output_tokens": summary.num_output_tokens,
        "gen_ai.usage.cache_read.input_tokens": summary.num_cached_tokens,
        **{f"pilotfish.speculation.{name}": getattr(summary.speculation, name) for name in _STATISTICS},
        "pilotfish.speculation.limitation": summary.speculation.reason_id,
        "pilotfish.emulated": summary.emulated,
        "pilotfish.speculation.lossy": summary.lossy,
    }


async def add_spans(
    tracing: Tracing, root: Span, times: RequestTimes, records: tuple[RoundRecord, ...], epoch_ns: int
) -> None:
    """The spans inside a request's own, when it is over. epoch_ns: what its times are to be increased by."""

    def add(parent: Span, name: str, start_ns: int, end_ns: int, **attributes: AttributeValue) -> Span:
        named: dict[str, AttributeValue] = {f"pilotfish.{key}": value for key, value in attributes.items()}
        return tracing.add(parent, name, start_ns + epoch_ns, end_ns + epoch_ns, named)

    has_answered = times.first_token_ns > times.arrival_ns
    queue_end_ns = times.arrival_ns + times.queue_time_ns if has_answered else times.end_ns
    add(root, "queue", times.arrival_ns, queue_end_ns)
    if has_answered:
        add(root, "prefill", queue_end_ns, times.first_token_ns)
    for index, record in enumerate(records):
        if index % _RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        _add_round(add, root, record)


def _add_round(add: Callable[..., Span], root: Span, record: RoundRecord) -> None:
    """A round and its parts. The parts last as long as they took and add up to the round; the ways there and back,
    handling at both ends included, are shown as one, between the drafter's part and the target's."""
    name = "round" if record.is_verification else "decode"
    span = add(
        root,
        name,
        record.start_ns,
        record.end_ns,
        round=record.number,
        reason=record.decision.reason.value,
        num_requested_tokens=record.decision.num_draft_tokens,
        num_draft_tokens=record.num_draft_tokens,
        num_accepted_tokens=record.num_accepted_tokens,
        num_tokens=record.num_tokens,
        drafter_version=record.drafter_version,
    )
    if not record.is_verification:
        return
    proposed_ns = min(record.start_ns + (record.drafter_ns or record.propose_ns), record.end_ns)
    verify_ns = max(proposed_ns, record.end_ns - record.target_ns)
    add(span, "propose", record.start_ns, proposed_ns)
    add(span, "network", proposed_ns, verify_ns)
    add(span, "verify", verify_ns, record.end_ns)
