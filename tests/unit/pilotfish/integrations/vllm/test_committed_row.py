"""What would have become of a draft."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.row_trace import NO_TRACE


@pytest.mark.parametrize(
    ("draft", "fate"),
    [
        ((4, 5, 6), None),  # all is right so far, and the last token is to come
        ((4, 5), 2),
        ((4, 9, 6), 1),
        ((9,), 0),
        ((), 0),
    ],
)
def test_a_draft_has_its_fate_once_no_token_can_change_it(draft, fate) -> None:
    row = CommittedRow(3, ProposerCounters(), NO_TRACE)
    row.commit(RowStep(1, 5, (1, 2, 3, 4, 5), 3, 2))
    assert row.fate_of(3, draft) == fate
