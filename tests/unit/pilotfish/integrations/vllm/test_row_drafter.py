"""What is said to a draft replica for one row, step by step, and what is made of its answers."""

from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span

from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from pilotfish.config import TelemetryConfig
from pilotfish.integrations.vllm.batch_drafter import BatchDrafter
from pilotfish.integrations.vllm.batch_rows import BatchStep, RowStep
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.messages import Predrafted, Proposal, SequenceError
from pilotfish.telemetry.tracing import Tracing
from pilotfish.types import SequenceErrorCode

PROMPT = (1, 2, 3)
K = 4


class FakePool:
    def __init__(self, link: Any) -> None:
        self.links = (link,)

    def pick(self, avoid: Collection[str] = ()) -> Any:
        return self.links[0] if self.links[0].is_healthy else None


class RecordingTracing(Tracing):
    """Every span is recorded, and kept."""

    def __init__(self) -> None:
        super().__init__(TelemetryConfig(), "test")
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._recording = provider.get_tracer("test")

    def begin(self, name: str, start_ns: int, remote: object = None) -> Span:
        return self._recording.start_span(name, start_time=start_ns)


class Row:
    """A row of vLLM, and the steps that it is in."""

    def __init__(self, drafting: BatchDrafter) -> None:
        self.drafting = drafting
        self.length = 0
        self.step: DraftingStep

    def begin(self, *new_token_ids: int) -> DraftingStep:
        tokens = (*PROMPT, *new_token_ids) if self.length == 0 else new_token_ids
        self.length += len(tokens)
        row = RowStep(1, tokens, len(PROMPT) if self.length == len(tokens) else 0, len(new_token_ids))
        self.step = DraftingStep(BatchStep((row,), frozenset((1,))))
        self.drafting.begin(self.step)
        return self.step

    def miss(self, *new_token_ids: int) -> None:
        """A step that waits in vain."""
        assert self.begin(*new_token_ids).wait(0.0) == [[]]
        assert self.step.num_missing == 1


@pytest.fixture
def counters() -> ProposerCounters:
    return ProposerCounters()


@pytest.fixture
def tracing() -> RecordingTracing:
    return RecordingTracing()


@pytest.fixture
async def row(link, counters, tracing) -> Row:
    target = TargetModel("toy", vocab_size=100, num_draft_tokens=K, tokenizer="", tokenizer_revision=None)
    return Row(BatchDrafter(FakePool(link), target, PredraftPolicy("on", 16), counters, tracing))  # type: ignore[arg-type]


def answer(row: Row, link: Any, *token_ids: int) -> None:
    assert link.mailbox is not None
    link.mailbox.deliver(Proposal(7, row.length, token_ids))


async def test_a_late_draft_is_dropped_and_is_one_failure(row, link, counters) -> None:
    row.begin(4)
    answer(row, link)
    row.miss(5)
    answer(row, link, 6, 7, 8)
    assert len(link.failures) == 1
    step = row.begin(6)
    answer(row, link, 9)
    assert step.wait(0.0) == [[9]]
    row.begin(9, 1)
    assert (counters.acceptance.num_draft_tokens, counters.acceptance.num_accepted_tokens) == (1, 1)
    assert (len(link.failures), link.num_successes) == (1, 2)


async def test_a_token_beyond_vllms_vocabulary_never_reaches_it(row, link) -> None:
    link.model = msgspec.structs.replace(link.model, vocab_size=200)  # the draft model's is padded further
    row.begin(4)
    answer(row, link)
    step = row.begin(5)
    answer(row, link, 6, 100)
    assert step.wait(0.0) == [[]]
    assert len(link.failures) == 1
    assert link.mailbox is None


async def test_a_token_beyond_vllms_vocabulary_is_not_drafted_ahead_either(row, link) -> None:
    link.model = msgspec.structs.replace(link.model, vocab_size=200)
    row.begin(4)
    answer(row, link, 5, 6)
    link.mailbox.deliver(Predrafted(7, 4, (5, 6), (1, 2), (9, 8), (10, 100, 12, 13)))
    assert row.begin(5, 9).wait(0.0) == [[]]
    assert len(link.failures) == 1


async def test_a_tree_is_no_draft_for_vllm(row, link) -> None:
    row.begin(4)
    answer(row, link)
    step = row.begin(5)
    link.mailbox.deliver(Proposal(7, row.length, (6, 7), parents=(-1, -1)))
    assert step.wait(0.0) == [[]]


async def test_a_foreseen_outcome_needs_no_answer(row, link) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    assert link.commands[-1].ahead is not None
    link.mailbox.deliver(Predrafted(7, 4, (5, 6), (1, 2), (9, 8), (10, 11, 12, 13)))
    step = row.begin(5, 9)
    assert step.num_missing == 0
    assert step.wait(0.0) == [[10, 11]]
    assert link.commands[-1].is_prepared
    assert link.commands[-1].base_length == 6


async def test_a_prepared_draft_that_comes_while_it_is_asked_for_is_the_answer(row, link) -> None:
    row.begin(4)
    answer(row, link, 5, 6)
    row.step.wait(0.0)
    step = row.begin(5, 9)
    link.mailbox.deliver(Predrafted(7, 4, (5, 6), (1, 2), (9, 8), (10, 11, 12, 13)))
    assert step.wait(0.0) == [[10, 11]]
    answer(row, link, 10, 11)  # the replica answers, too, when vLLM verifies already
    row.begin(10, 11, 12)
    assert (link.failures, link.num_successes) == ([], 2)


@pytest.mark.parametrize(
    ("code", "noted"),
    [
        (SequenceErrorCode.RESOURCE_EXHAUSTED, "is_full"),
        (SequenceErrorCode.UNAVAILABLE, "is_draining"),
        (SequenceErrorCode.INTERNAL, "failures"),
    ],
)
async def test_a_refusal_is_told_to_the_link_as_what_it_is(row, link, code, noted) -> None:
    row.begin(4)
    link.mailbox.deliver(SequenceError(7, code, "no", 4))
    assert getattr(link, noted)
    assert link.mailbox is None


async def test_a_row_that_the_replica_refuses_is_not_asked_for_again(row, link) -> None:
    row.begin(4)
    link.mailbox.deliver(SequenceError(7, SequenceErrorCode.INVALID, "the draft model's context is full", 4))
    num_commands = len(link.commands)
    for token_id in range(5):
        row.begin(token_id)
    assert len(link.commands) == num_commands
    assert (link.failures, link.mailbox) == ([], None)


async def test_a_row_is_a_span_that_the_replicas_is_part_of(row, link, tracing) -> None:
    row.begin(4)
    assert link.commands[0].traceparent
    answer(row, link, 5, 6)
    row.begin(5, 9)
    assert tracing.exporter.get_finished_spans() == ()
    row.drafting.close()
    (span,) = tracing.exporter.get_finished_spans()
    assert span.name == "speculation"
    assert link.commands[0].traceparent.split("-")[2] == f"{span.context.span_id:016x}"
    assert span.attributes["gen_ai.usage.output_tokens"] == 3
    assert span.attributes["pilotfish.speculation.num_draft_tokens"] == 2
    assert span.attributes["pilotfish.speculation.num_accepted_tokens"] == 1
