"""What one request is told to do next: by its mode, by operators' rules, by what is measured."""

from __future__ import annotations

from itertools import pairwise

import pytest

from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.reasons import Reason
from orchestrator.requests.kind import Kind


def decoded_plainly(request, first: int = 0) -> float:
    """Share of its decisions from this one on."""
    decisions = request.decisions[first:]
    return sum(not decision.num_draft_tokens for decision in decisions) / len(decisions)


# Modes and what a request asks for.


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mode": "off"}, Reason.MODE_OFF),
        ({"mode": "on", "k": 0}, Reason.NO_DRAFT_TOKENS),
        ({"max_tokens": 8}, Reason.SHORT_OUTPUT),
    ],
)
@pytest.mark.parametrize("kind", [Controller, InTargetController])
def test_one_that_never_drafts_is_one_run_over_everything_that_is_left(virtual_replica, kind, values, reason) -> None:
    request = virtual_replica().begin(kind=kind, **({"max_tokens": 300} | values))
    assert request.latest == Decision(0, values.get("max_tokens", 300), reason)
    assert not request.controller.will_draft_soon
    assert (request.controller.limitation.reason, request.controller.limitation.text) == (reason, reason.text)


def test_operators_say_what_a_short_answer_is(virtual_replica) -> None:
    assert virtual_replica(min_output_tokens=5).begin(max_tokens=9).latest.reason is Reason.FIRST_TOKEN


def test_on_drafts_in_every_round_after_the_first_token_whatever_that_costs(virtual_replica) -> None:
    replica = virtual_replica()
    replica.acceptance, replica.draft_token_s = 0.0, 0.1
    request = replica.begin("on", k=4)
    assert request.latest == Decision(0, 1, Reason.FIRST_TOKEN)
    replica.run(50)
    assert set(request.decisions[1:]) == {Decision(4, 1, Reason.REQUESTED)}
    assert request.controller.limitation.text == ""


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_no_more_is_drafted_than_is_left_to_decode(virtual_replica, mode) -> None:
    replica = virtual_replica()
    replica.acceptance = 1.0
    request = replica.begin(mode, k=4, max_tokens=14)
    replica.run(1.0)
    assert [decision.num_draft_tokens for decision in request.decisions] == [0, 4, 4, 2]
    assert request.num_tokens == 14


# Without a drafter.


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_without_a_drafter_it_decodes_in_runs_says_why_and_looks_again(virtual_replica, mode) -> None:
    replica = virtual_replica(decode_run_tokens=8)
    replica.facts = {"drafter_absence": "there is no draft replica"}
    request = replica.begin(mode)
    replica.run(1.0)
    assert set(request.decisions) == {Decision(0, 8, Reason.NO_DRAFTER, "there is no draft replica")}
    assert request.controller.limitation.text == "there is no draft replica"
    replica.facts = {}
    replica.run(1.0)
    assert request.latest.num_draft_tokens > 0


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_without_a_place_in_the_draft_pool_it_says_so(virtual_replica, mode) -> None:
    replica = virtual_replica()
    request = replica.begin(mode)
    replica.run(0.5)
    replica.facts = {"drafter_absence": "all are in use", "is_drafter_saturated": True}
    replica.run(0.5)
    assert (request.latest.reason, request.latest.num_draft_tokens) == (Reason.DRAFT_POOL_SATURATED, 0)
    assert request.controller.limitation.text == "all are in use"


def test_before_a_replica_has_told_its_costs_it_decodes_plainly(virtual_replica, table) -> None:
    replica = virtual_replica()
    replica.facts = {"step_table": type(table)()}
    request = replica.begin()
    replica.run(1.0)
    assert request.reasons(1).keys() == {Reason.MEASURING}
    replica.facts = {}
    replica.run(0.3)
    assert request.latest.reason is Reason.FASTEST


@pytest.mark.parametrize("kind", [Controller, InTargetController])
def test_steps_that_take_no_time_are_no_problem(virtual_replica, kind) -> None:
    """As an emulated engine's may."""
    replica = virtual_replica(base_s=0.0, row_s=0.0)
    replica.draft_token_s = 0.0
    replica.base_s = replica.in_target_token_s = 0.0001  # the network
    request = replica.begin(kind=kind)
    replica.run(1.0)
    assert request.num_tokens > 1000


# On or off, and how far.


def test_drafts_that_are_accepted_are_made_as_long_as_pays(virtual_replica) -> None:
    """By the costs of the replica 5 tokens are best if nine in ten are accepted, 2 if half are."""
    chosen = {}
    for acceptance in (0.9, 0.5):
        replica = virtual_replica(row_s=0.001)
        replica.acceptance = acceptance
        request = replica.begin(k=5)
        replica.run(20.0)
        assert request.reasons(50).keys() <= {Reason.FASTEST, Reason.MEASURING}
        chosen[acceptance] = request.controller.num_rounds_by_k.most_common(1)[0][0]
    assert chosen[0.9] == 5
    assert chosen[0.5] in (1, 2)


def test_drafts_that_are_never_accepted_are_soon_no_longer_made(virtual_replica) -> None:
    replica = virtual_replica()
    replica.acceptance = 0.0
    request = replica.begin()
    replica.run(3.0)
    assert request.latest == Decision(0, 16, Reason.ACCEPTANCE)
    assert request.controller.limitation.reason is Reason.ACCEPTANCE
    assert "plain decoding is faster" in request.controller.limitation.text
    assert replica.state.num_switches == {False: 1}
    assert replica.speed_over_plain(request, 100.0) > 0.98


def test_a_drafter_that_takes_too_long_is_left_alone_and_tried_again(virtual_replica) -> None:
    replica = virtual_replica()
    replica.draft_token_s = 0.02
    request = replica.begin()
    replica.run(3.0)
    assert request.latest.num_draft_tokens == 0
    assert request.controller.limitation.reason is Reason.ROUND_TIME
    assert replica.speed_over_plain(request, 100.0) > 0.97
    replica.draft_token_s = 0.0005
    replica.run(70.0)
    assert request.latest.reason is Reason.FASTEST


@pytest.mark.parametrize("pays", [True, False])
def test_what_the_network_takes_counts(virtual_replica, pays) -> None:
    """2.8 tokens in 14 ms are faster than 10 ms a token; in 34 ms they are not."""
    replica = virtual_replica()
    replica.acceptance, replica.overhead_s = 0.7, 0.001 if pays else 0.021
    request = replica.begin()
    replica.run(5.0)
    assert (request.latest.reason is Reason.FASTEST) is pays


def test_trees_cost_by_their_tokens_and_are_accepted_by_their_depth(virtual_replica) -> None:
    depths = {}
    for nodes_per_level in (1, 6):
        replica = virtual_replica(row_s=0.0005)
        replica.acceptance, replica.nodes_per_level = 0.8, nodes_per_level
        request = replica.begin(k=8)
        replica.run(10.0)
        depths[nodes_per_level] = request.latest.num_draft_tokens
        known = replica.state.acceptance["draft"]
        assert known.probabilities(2) == pytest.approx([0.8, 0.8], abs=0.1)
        assert known.draft_length(5) == pytest.approx(5 * nodes_per_level, rel=0.05)
    assert 0 < depths[6] < depths[1]


def test_a_request_that_differs_from_all_others_decides_for_itself(virtual_replica) -> None:
    """Of eight, seven have good drafts, and one has none that hold."""
    replica = virtual_replica()
    replica.overhead_s = 0.006
    others = replica.begin_many(7)
    odd = replica.begin()
    odd.acceptance = 0.0
    replica.run(10.0)
    assert {other.latest.reason for other in others} == {Reason.FASTEST}
    assert odd.latest == Decision(0, 16, Reason.ACCEPTANCE)
    odd.acceptance = None
    replica.end(*others)
    for other in (others := replica.begin_many(7)):
        other.acceptance = 0.0
    odd = replica.begin()
    odd.acceptance = 0.95
    replica.run(20.0)
    assert odd.latest.reason is Reason.FASTEST
    assert {other.latest.reason for other in others} <= {Reason.ACCEPTANCE, Reason.PROBE}


def test_what_one_request_learns_the_next_begins_with(virtual_replica) -> None:
    replica = virtual_replica()
    replica.acceptance = 0.0
    first = replica.begin()
    replica.run(5.0)
    replica.end(first)
    second = replica.begin()
    assert not second.controller.will_draft_soon
    replica.run(0.3)
    assert second.reasons().keys() == {Reason.FIRST_TOKEN, Reason.ACCEPTANCE}
    assert replica.begin("on").controller.will_draft_soon


# Empty proposals.


def test_a_drafter_without_ideas_is_asked_ever_more_rarely_until_a_draft_holds(virtual_replica) -> None:
    replica = virtual_replica(decode_run_tokens=8)
    replica.answered = 0.0
    request = replica.begin("on")
    replica.run(1.0)
    assert [decision.num_decode_tokens for decision in request.decisions[1:6]] == [1, 2, 4, 8, 8]
    replica.answered, replica.acceptance = 1.0, 0.0
    replica.run(1.0)
    assert request.latest.num_decode_tokens == 8
    replica.acceptance = 1.0
    replica.run(1.0)
    assert request.latest.num_decode_tokens == 1


@pytest.mark.parametrize(("ask_s", "pays"), [(0.0002, True), (0.01, False)])
def test_asking_in_vain_is_worth_while_only_if_it_costs_little(virtual_replica, ask_s, pays) -> None:
    """One proposal in four has a draft."""
    replica = virtual_replica(decode_run_tokens=2)
    replica.answered, replica.acceptance, replica.draft_token_s = 0.25, 0.8, ask_s
    request = replica.begin(k=2)
    replica.run(20.0)
    before = len(request.decisions)
    assert replica.speed_over_plain(request, 40.0) > (1.1 if pays else 0.97)
    assert (decoded_plainly(request, before) < 0.2) is pays
    if pays:
        assert replica.state.acceptance["draft"].empty_share == pytest.approx(0.75, abs=0.15)
        costs = replica.state.replicas["a"].proposers["draft"].costs
        assert costs.empty_s(1) == pytest.approx(2 * ask_s, rel=0.5), "a question of two tokens, or of one"


def test_a_probe_is_one_question_where_the_drafter_has_no_answer(virtual_replica) -> None:
    replica = virtual_replica()
    replica.acceptance = 0.0
    request = replica.begin()
    replica.run(5.0)
    replica.answered, before = 0.0, len(request.decisions)
    replica.run(40.0)
    reasons = [decision.reason for decision in request.decisions[before:]]
    assert Reason.PROBE in reasons
    assert not any(earlier is later is Reason.PROBE for earlier, later in pairwise(reasons))


# Which drafter.


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ({"mode": "auto"}, True),
        ({"mode": "on"}, True),
        ({"mode": "on", "says_mode": True}, False),
    ],
)
def test_how_fast_a_drafter_is_for_others_is_not_learnt_of_answers_that_drafted_whatever_it_costs(
    virtual_replica, values, counts: bool
) -> None:
    replica = virtual_replica()
    replica.begin(max_tokens=100, proposer="draft", **values)
    replica.run(20.0)
    assert not replica.requests
    untried = "eagle3" if counts else "draft"
    assert replica.state.choose_proposer("a", Kind.PLAIN, ["draft", "eagle3"]) == untried
