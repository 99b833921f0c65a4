"""Drafts that vLLM was not given: what serves a later step, and what is compared with what it says."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.row_trace import NO_TRACE
from pilotfish.integrations.vllm.unused_drafts import ShadowFate, UnusedDrafts
from pilotfish.messages import Proposal


class Fixture:
    """A row of three prompt tokens and one more, 4."""

    def __init__(self) -> None:
        self.counters = ProposerCounters()
        self.row = CommittedRow(3, self.counters, NO_TRACE)
        self.fates: list[ShadowFate] = []
        self.unused = UnusedDrafts(self.row, self.counters, self.fates.append)
        self.commit(1, 2, 3, 4)

    def commit(self, *token_ids: int) -> None:
        self.row.commit(RowStep(9, self.row.length + len(token_ids), token_ids, 0, 1))
        self.unused.settle(9)


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def test_the_rest_of_a_late_draft_is_taken_once_and_cut_to_what_is_wanted(fixture) -> None:
    fixture.unused.keep_late(Proposal(7, 4, (5, 6, 7, 8)))
    fixture.commit(5)
    assert fixture.unused.take_rest(2) == (6, 7)
    assert fixture.unused.take_rest(2) == ()
    assert fixture.counters.num_late_drafts == 1


def test_a_late_draft_that_vllm_did_not_say_has_no_rest(fixture) -> None:
    fixture.unused.keep_late(Proposal(7, 4, (5, 6, 7)))
    fixture.commit(9)
    assert fixture.unused.take_rest(4) == ()
    assert fixture.counters.num_late_drafts == 0


def test_a_shadow_has_its_fate_told_once(fixture) -> None:
    fixture.unused.keep_shadow(Proposal(7, 4, (5, 6, 7)))
    fixture.commit(5)
    assert fixture.unused.has_shadow
    fixture.commit(9)
    fixture.commit(7)
    assert fixture.fates == [ShadowFate(row_id=9, num_tokens=3, num_right=1)]
    assert not fixture.unused.has_shadow
    assert fixture.counters.num_shadow_drafts == 1


@pytest.mark.parametrize("end", [lambda unused: unused.take_rest(4), lambda unused: unused.forget()])
def test_what_was_taken_or_left_has_no_fate(fixture, end) -> None:
    fixture.unused.keep_shadow(Proposal(7, 4, (5, 6)))
    end(fixture.unused)
    fixture.commit(9)
    assert fixture.fates == []
