"""What one replica is told of a row."""

from __future__ import annotations

import pytest

from pilotfish.errors import UnavailableError
from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.replica_row import ReplicaRow
from pilotfish.integrations.vllm.row_trace import NO_TRACE
from pilotfish.messages import AheadRequest, CloseSequence, OpenSequence, Propose

MAILBOX = object()


@pytest.fixture
def committed() -> CommittedRow:
    row = CommittedRow(3, ProposerCounters(), NO_TRACE)
    row.commit(RowStep(1, 4, (1, 2, 3, 4), 3, 1))
    return row


@pytest.fixture
def replica_row(committed) -> ReplicaRow:
    return ReplicaRow(committed)


def test_it_is_told_everything_once_and_then_what_is_new(replica_row, committed, link) -> None:
    replica_row.open(link, MAILBOX)
    assert link.mailbox is MAILBOX
    for token_id in (5, 6):
        committed.commit(RowStep(1, committed.length + 1, (token_id,), 0, 1))
        replica_row.propose(20, AheadRequest(4, (0.5,)), is_prepared=token_id == 6)
    opened, first, second = link.commands
    assert isinstance(opened, OpenSequence)
    assert (opened.prompt_token_ids, opened.output_token_ids) == ((1, 2, 3), (4,))
    assert isinstance(first, Propose)
    assert (first.base_length, first.new_token_ids, first.is_prepared) == (5, (5,), False)
    assert (second.base_length, second.new_token_ids, second.is_prepared) == (6, (6,), True)
    assert first.num_draft_tokens == link.limits.max_draft_tokens


def test_it_is_closed_once(replica_row, link) -> None:
    replica_row.open(link, MAILBOX)
    replica_row.close()
    replica_row.close()
    assert link.commands[1:] == [CloseSequence(7)]
    assert (link.mailbox, replica_row.link) == (None, None)


@pytest.mark.parametrize("is_lost_while_it_is_told", [False, True])
def test_a_connection_that_went_down_leaves_nothing_attached(
    replica_row, link, monkeypatch, is_lost_while_it_is_told: bool
) -> None:
    def send(command: object) -> None:
        raise UnavailableError("gone")

    replica_row.open(link, MAILBOX)
    link.is_connected = is_lost_while_it_is_told
    monkeypatch.setattr(link, "send", send)
    replica_row.close()
    assert link.mailbox is None


def test_one_that_fails_is_not_worth_staying_on(replica_row, link) -> None:
    assert not replica_row.is_worth_staying
    replica_row.open(link, MAILBOX)
    assert replica_row.is_worth_staying
    link.is_healthy = False
    assert not replica_row.is_worth_staying
