"""Whole runs with a drafter in the target: drafted where that was measured to be faster, and else plain."""

from __future__ import annotations

import pytest

from orchestrator.control.decision import Decision
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.reasons import Reason

PLAIN_S = 0.0102


def begin(replica, mode="auto", **values):
    return replica.begin(mode, proposer="eagle3", kind=InTargetController, **values)


def share_drafted(request, first: int = 0) -> float:
    """Of its tokens, from this decision on."""
    decisions = request.decisions[first:]
    num_drafted = sum(decision.num_decode_tokens for decision in decisions if decision.num_draft_tokens)
    return num_drafted / sum(decision.num_decode_tokens for decision in decisions)


def test_on_is_one_drafted_run(virtual_replica) -> None:
    replica = virtual_replica()
    replica.in_target_token_s = 2 * PLAIN_S
    request = begin(replica, "on", k=4, max_tokens=2000)
    replica.run(60.0)
    assert request.decisions == [Decision(4, 2000, Reason.REQUESTED)]
    assert request.num_tokens == 2000


def test_it_begins_with_drafts_in_runs_and_goes_on_where_they_are_faster(virtual_replica) -> None:
    replica = virtual_replica()
    replica.in_target_token_s = 0.6 * PLAIN_S
    request = begin(replica, k=4)
    assert (request.latest.num_draft_tokens, request.latest.num_decode_tokens) == (4, 16)
    replica.run(60.0)
    assert share_drafted(request) > 0.97
    assert (request.latest.num_draft_tokens, request.latest.reason) == (4, Reason.FASTEST)
    assert request.controller.limitation.text == ""


def test_where_drafts_are_slower_they_end_and_are_tried_now_and_then(virtual_replica) -> None:
    replica = virtual_replica()
    replica.in_target_token_s = 1.3 * PLAIN_S
    request = begin(replica)
    replica.run(200.0)
    assert 0.0 < share_drafted(request, 20) < 0.06
    assert request.latest.reason is Reason.ACCEPTANCE
    limitation = request.controller.limitation
    assert limitation.reason is Reason.ACCEPTANCE
    assert limitation.text == "measured: plain decoding is faster (0.77 of its speed with drafts)"


def test_what_is_expected_of_drafts_is_what_their_tokens_took(virtual_replica) -> None:
    replica = virtual_replica()
    replica.in_target_token_s = 0.6 * PLAIN_S
    begin(replica)
    proposer = replica.state.proposer("a", "eagle3")
    assert proposer.expected_gain is None, "nothing was measured yet"
    replica.run(10.0)
    assert proposer.expected_gain == pytest.approx(1 / 0.6, rel=0.05)
    assert proposer.measured_gain.value == pytest.approx(1 / 0.6, rel=0.05)
    assert proposer.num_draft_tokens == 0, "the target decides"


def test_a_wrong_table_misleads_it_only_until_plain_runs_are_measured(virtual_replica) -> None:
    """By the table a plain token takes 13 ms, and a drafted one takes 12: in truth a plain one takes 10."""
    replica = virtual_replica(table_factor=1.3)
    replica.in_target_token_s = 1.2 * PLAIN_S
    request = begin(replica)
    replica.run(60.0)
    assert share_drafted(request, len(request.decisions) // 2) < 0.1


@pytest.mark.parametrize(("before", "after"), [(0.6, 1.3), (1.3, 0.6)])
def test_a_change_of_the_text_is_noticed(virtual_replica, before, after) -> None:
    replica = virtual_replica()
    replica.in_target_token_s = before * PLAIN_S
    request = begin(replica)
    replica.run(10.0)
    replica.in_target_token_s = after * PLAIN_S
    replica.run(70.0)
    num_decisions = len(request.decisions)
    replica.run(60.0)
    assert (share_drafted(request, num_decisions) > 0.5) is (after < 1)


def test_what_drafted_runs_take_on_one_replica_says_nothing_of_another(virtual_replica) -> None:
    one = virtual_replica()
    one.in_target_token_s = 2 * PLAIN_S
    begin(one)
    one.run(10.0)
    other = virtual_replica(state=one.state, replica_id="b")
    other.in_target_token_s = 0.6 * PLAIN_S
    request = begin(other)
    other.run(5.0)
    assert request.latest.reason is Reason.FASTEST


def test_prefills_are_held_against_neither(virtual_replica) -> None:
    replica = virtual_replica()
    replica.in_target_token_s, replica.prefill_s = 0.6 * PLAIN_S, 0.2
    request = begin(replica)
    replica.run(100.0)
    assert share_drafted(request) > 0.9


def test_operators_rules_hold(virtual_replica) -> None:
    replica = virtual_replica(num_speculative_tokens_per_batch_size=((1, 1, 2), (2, 100, 0)))
    replica.in_target_token_s = 0.6 * PLAIN_S
    request = begin(replica, k=4)
    replica.run(3.0)
    assert (request.latest.num_draft_tokens, request.latest.reason) == (2, Reason.FASTEST)
    begin(replica)
    replica.run(3.0)
    assert (request.latest.num_draft_tokens, request.latest.reason) == (0, Reason.BATCH_SIZE)
    assert request.controller.limitation.reason is Reason.BATCH_SIZE
