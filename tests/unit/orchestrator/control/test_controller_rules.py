"""What one request is told to do next by load and by operators' rules, and what others see of it."""

from __future__ import annotations

import pytest

from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.reasons import Reason

DEAR_ROW_S = 0.0022
"""With it 32 sequences decode fastest without a draft, and one does not."""


# Load and operators' rules.


def test_the_load_decides_and_leaves_with_the_requests(virtual_replica) -> None:
    """Alone drafts are nearly free, among 31 others each row costs everybody."""
    replica = virtual_replica(row_s=DEAR_ROW_S)
    request = replica.begin()
    replica.run(3.0)
    assert request.latest.reason is Reason.FASTEST
    others = replica.begin_many(31)
    replica.run(10.0)
    assert request.latest.reason is Reason.LOAD
    assert request.controller.limitation.reason is Reason.LOAD
    replica.end(*others)
    replica.run(2.0)
    assert request.latest.reason is Reason.FASTEST
    assert replica.state.num_switches == {False: 1, True: 1}


def test_sequences_of_other_orchestrators_count(virtual_replica) -> None:
    replica = virtual_replica(row_s=DEAR_ROW_S)
    replica.facts = {"num_other_sequences": 31}
    request = replica.begin()
    replica.run(2.0)
    assert request.latest.reason is Reason.LOAD


def test_operators_may_set_k_by_batch_size(virtual_replica) -> None:
    replica = virtual_replica(num_speculative_tokens_per_batch_size=((1, 1, 2), (2, 4, 1), (5, 100, 0)))
    replica.acceptance = 1.0
    request = replica.begin(k=8)
    replica.run(1.0)
    assert request.latest.num_draft_tokens == 2
    replica.begin()
    replica.run(1.0)
    assert request.latest.num_draft_tokens == 1
    replica.begin_many(3)
    replica.run(1.0)
    assert (request.latest.reason, request.latest.num_draft_tokens) == (Reason.BATCH_SIZE, 0)
    assert request.controller.limitation.reason is Reason.BATCH_SIZE


def test_operators_rules_are_not_for_requests_that_ask_for_drafts(virtual_replica) -> None:
    rules = {"num_speculative_tokens_per_batch_size": ((1, 100, 0),), "disable_by_batch_size": 1}
    replica = virtual_replica(min_acceptance_rate=1.0, **rules)
    request = replica.begin("on", k=3, says_mode=True)
    in_target = replica.begin("on", k=3, says_mode=True, proposer="eagle3", kind=InTargetController, max_tokens=100)
    assert in_target.latest == Decision(3, 100, Reason.REQUESTED)
    replica.run(1.0)
    assert request.latest == Decision(3, 1, Reason.REQUESTED)


@pytest.mark.parametrize("kind", [Controller, InTargetController])
def test_rules_by_batch_size_hold_for_a_mode_that_the_operator_has_set(virtual_replica, kind) -> None:
    replica = virtual_replica(disable_by_batch_size=4, num_speculative_tokens_per_batch_size=((2, 3, 1),))
    request = replica.begin("on", k=3, kind=kind)
    replica.run(1.0)
    assert (request.latest.reason, request.latest.num_draft_tokens) == (Reason.REQUESTED, 3)
    others = replica.begin_many(1)
    replica.run(1.0)
    assert (request.latest.reason, request.latest.num_draft_tokens) == (Reason.REQUESTED, 1)
    others += replica.begin_many(2)
    replica.run(1.0)
    assert (request.latest.reason, request.latest.num_draft_tokens) == (Reason.BATCH_SIZE, 0)
    assert request.controller.limitation.reason is Reason.BATCH_SIZE
    if kind is InTargetController:
        assert replica.begin("on", kind=kind).latest.reason is Reason.BATCH_SIZE, "from its first token on"
    replica.end(*replica.requests[1:])
    replica.run(1.0)
    assert (request.latest.reason, request.latest.num_draft_tokens) == (Reason.REQUESTED, 3)


@pytest.mark.parametrize("mode", ["on", "auto"])
@pytest.mark.parametrize("kind", [Controller, InTargetController])
def test_the_first_tokens_are_decoded_plainly(virtual_replica, kind, mode) -> None:
    replica = virtual_replica(first_chunk_tokens=6)
    request = replica.begin(mode, kind=kind, max_tokens=60)
    assert request.latest == Decision(0, 6, Reason.FIRST_TOKEN)
    replica.run(10.0)
    assert request.decisions[1].reason is not Reason.FIRST_TOKEN
    assert any(decision.num_draft_tokens for decision in request.decisions)
    assert request.num_tokens == 60
    short = replica.begin(mode, kind=kind, max_tokens=3)
    assert short.latest.num_decode_tokens == 3


def test_where_drafts_do_not_pay_the_first_run_is_as_long_as_any(virtual_replica) -> None:
    """Behind a shorter one the target would wait for the next."""
    replica = virtual_replica(decode_run_tokens=16)
    replica.acceptance = 0.0
    replica.begin()
    replica.run(3.0)
    assert replica.begin().latest == Decision(0, 16, Reason.FIRST_TOKEN)
    assert replica.begin(max_tokens=12).latest == Decision(0, 12, Reason.FIRST_TOKEN)
    assert replica.begin("on").latest == Decision(0, 1, Reason.FIRST_TOKEN)


@pytest.mark.parametrize(
    ("rule", "sizes", "off"),
    [
        ({"disable_by_batch_size": 12, "disable_by_batch_size_hysteresis": 8}, (11, 12, 11, 4, 3, 11, 12), "-###--#"),
        ({"disable_by_batch_size": 8}, (7, 8, 7, 6, 5, 7, 8), "-###--#"),
        ({"disable_by_batch_size": 4}, (3, 4, 3, 2, 3), "-##--"),
        ({"disable_by_batch_size": 2}, (1, 2, 1), "-#-"),
        ({"disable_by_batch_size": 3, "disable_by_batch_size_hysteresis": 8}, (2, 3, 2, 1, 2), "-##--"),
    ],
)
def test_off_from_a_batch_size_on_with_hysteresis(virtual_replica, rule, sizes, off: str) -> None:
    """Without one of the operator's own: a quarter of the limit."""
    replica = virtual_replica(**rule)
    replica.acceptance = 1.0
    request, others = replica.begin(), []

    def is_off(num_sequences: int) -> bool:
        while len(others) + 1 > num_sequences:
            replica.end(others.pop())
        others.extend(replica.begin_many(num_sequences - 1 - len(others)))
        replica.run(3.0)
        return request.latest.reason is Reason.BATCH_SIZE

    assert "".join("#" if is_off(size) else "-" for size in sizes) == off


def test_below_the_acceptance_floor_only_probes_are_drafted(virtual_replica) -> None:
    """Drafts that would pay: three in ten of the first tokens are rejected."""
    replica = virtual_replica(min_acceptance_rate=0.85)
    request = replica.begin()
    replica.run(20.0)
    assert request.reasons(len(request.decisions) // 2).keys() <= {Reason.ACCEPTANCE_FLOOR, Reason.PROBE}
    assert request.controller.limitation.reason is Reason.ACCEPTANCE_FLOOR
    lower = virtual_replica(min_acceptance_rate=0.5)
    request = lower.begin()
    lower.run(20.0)
    assert request.latest.reason is Reason.FASTEST


# What others see.


def test_every_decision_is_counted(virtual_replica) -> None:
    replica = virtual_replica()
    request = replica.begin(max_tokens=40)
    replica.run(5.0)
    state = replica.state
    assert state.num_decisions == request.reasons()
    assert state.num_rounds_by_k == request.controller.num_rounds_by_k
    assert state.num_rounds_by_k.total() == len(request.decisions)
    replica.begin()
    assert state.latest_reason is Reason.FASTEST, "and not that a first token is waited for"


def test_a_request_that_has_ended_counts_nowhere(virtual_replica) -> None:
    replica = virtual_replica()
    request = replica.begin("on")
    replica.run(1.0)
    request.controller.close()
    request.controller.close()
    state = replica.state.replicas["a"]
    assert (state.own.num, state.own.num_speculating, state.own.num_rows) == (0, 0, 0)
    assert not any(state.draft_limits.values())


# What is over is noticed.


def test_a_drafter_that_had_no_ideas_for_long_is_asked_again(virtual_replica) -> None:
    replica = virtual_replica()
    replica.answered, replica.acceptance, replica.draft_token_s = 0.0, 0.9, 0.002
    request = replica.begin(k=5)
    replica.run(30.0)
    assert not request.latest.num_draft_tokens
    replica.answered, replica.draft_token_s = 1.0, 0.0002
    replica.run(60.0)
    assert request.latest.reason is Reason.FASTEST


def test_no_round_asks_for_more_than_operators_allow(virtual_replica) -> None:
    replica = virtual_replica(num_speculative_tokens_per_batch_size=((1, 100, 1),))
    replica.acceptance = 0.0
    request = replica.begin(k=8)
    replica.run(5.0)
    replica.acceptance = 1.0
    replica.run(8.0)
    assert {decision.num_draft_tokens for decision in request.decisions} == {0, 1}


@pytest.mark.parametrize(("rule", "most"), [({"disable_by_batch_size": 1}, 0), ({}, 2)])
def test_the_first_run_of_an_in_target_drafter_is_within_operators_rules(virtual_replica, rule, most: int) -> None:
    per_size = {} if rule else {"num_speculative_tokens_per_batch_size": ((1, 100, 2),)}
    replica = virtual_replica(**rule, **per_size)
    replica.begin(k=8, kind=InTargetController, proposer="eagle3")
    replica.run(3.0)
    later = replica.begin(k=8, kind=InTargetController, proposer="eagle3")
    assert later.decisions[0].num_draft_tokens == most


def test_a_request_whose_answer_is_one_run_counts_from_its_first_token(virtual_replica) -> None:
    replica = virtual_replica()
    request = replica.begin("off")
    request.controller.begin(RoundResult(now_s=0.0, num_output_tokens=1, num_remaining_tokens=9, replica_id="a"))
    assert replica.state.replicas["a"].own.num == 1
    request.controller.close()
    assert replica.state.replicas["a"].own.num == 0


@pytest.mark.parametrize(("draft_token_s", "least", "most"), [(0.0005, 1.5, 2.5), (0.02, 0.1, 0.5)])
def test_the_speed_over_plain_decoding_is_measured_in_mode_on_as_well(
    virtual_replica, draft_token_s, least, most
) -> None:
    replica = virtual_replica()
    replica.draft_token_s = draft_token_s
    request = replica.begin("on", k=4)
    replica.run(20.0)
    measured = replica.state.replicas["a"].proposers["draft"].measured_gain.value
    assert least < measured < most
    assert measured == pytest.approx(speed(replica, request), rel=0.1)


def speed(replica, request) -> float:
    """Over plain decoding's."""
    return request.num_tokens * (replica.base_s + replica.row_s) / replica.now_s
