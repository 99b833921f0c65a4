"""A row as spans."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pilotfish.config import TelemetryConfig
from pilotfish.integrations.vllm.row_trace import RecordedRow, RowTracing
from pilotfish.telemetry.tracing import Span, Tracing


class Export:
    """Keeps the spans that ended."""

    def __init__(self) -> None:
        self.spans: list[object] = []

    def add(self, span: object) -> None:
        self.spans.append(span)


@pytest.fixture
def export() -> Export:
    return Export()


def recorded(export: Export, max_proposals: int | None) -> RecordedRow:
    span = Span(1, 2, 0, "speculation", 1, export)  # type: ignore[arg-type]
    return RecordedRow(Tracing(TelemetryConfig(), "test"), span, max_proposals)


def test_proposals_and_the_whole_are_told_when_the_row_ends(export) -> None:
    row = recorded(export, None)
    assert "-00000000000000000000000000000001-" in row.traceparent
    row.add_proposal(0.001, 4)
    row.add_verified(4, 2)
    assert export.spans == []
    row.end(12)
    row.end(12)
    proposal, whole = export.spans
    assert (proposal.name, whole.name) == ("propose", "speculation")
    assert proposal.end_time_unix_nano - proposal.start_time_unix_nano == 1_000_000
    attributes = {pair.key: pair.value.int_value for pair in whole.attributes}
    assert attributes["gen_ai.usage.output_tokens"] == 12
    assert attributes["pilotfish.speculation.num_accepted_tokens"] == 2


@pytest.mark.parametrize(("wanted", "most"), [(16, 16), (2, 2), (0, 0)])
def test_no_more_proposals_are_kept_than_wanted_and_they_are_spread(export, wanted, most) -> None:
    row = recorded(export, wanted)
    for number in range(1, 1001):
        row.add_proposal(0.001, number)
    row.end(1)
    kept = [span.attributes[0].value.int_value for span in export.spans if span.name == "propose"]
    assert len(kept) <= most
    if wanted == 16:
        assert len(kept) >= 8
        assert len({after - before for before, after in pairwise(kept)}) == 1
        assert kept[-1] > 800


async def test_where_nothing_is_exported_nothing_is_kept() -> None:
    tracing = RowTracing(TelemetryConfig())
    assert tracing.begin().traceparent == ""
    await tracing.close()
