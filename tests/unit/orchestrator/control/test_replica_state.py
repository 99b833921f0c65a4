"""What an orchestrator knows of its replicas, and of who decodes there."""

from __future__ import annotations

import pytest

from orchestrator.control.decision import RoundResult
from orchestrator.control.replica_state import ControlState, ReplicaState, expected_tokens
from pilotfish.config import SpeculationConfig


@pytest.mark.parametrize(
    ("probabilities", "k", "expected"),
    [((), 0, 1.0), ((0.5,), 1, 1.5), ((0.5, 0.5, 0.5), 2, 1.75), ((1.0, 0.0, 1.0), 3, 2.0), ((0.9, 0.8), 5, 2.62)],
)
def test_tokens_of_a_round(probabilities, k, expected) -> None:
    assert expected_tokens(probabilities, k) == pytest.approx(expected)


def test_a_request_counts_where_it_decodes_and_moves_with_it(virtual_replica) -> None:
    replica = virtual_replica()
    request, _ = replica.begin_many(2, mode="on")
    state = replica.state
    assert not state.replicas, "none of them has a token yet"
    replica.run(0.5)
    assert state.replicas["a"].num_decoding == 2
    controller = request.controller
    result = {"num_output_tokens": 50, "num_remaining_tokens": 100, "step_table": replica.table}
    controller.decide(RoundResult(now_s=1.0, replica_id="", **result))
    controller.decide(RoundResult(now_s=1.1, replica_id="b", **result))
    assert (state.replicas["a"].num_decoding, state.replicas["b"].num_decoding) == (1, 1)
    assert (state.replicas["a"].num_own, state.replicas["b"].num_own) == (1, 1)
    controller.close()
    assert state.replicas["b"].num_own == 0


def test_a_replica_that_was_lost_and_is_there_again_is_another(virtual_replica) -> None:
    replica = virtual_replica()
    requests = replica.begin_many(4)
    replica.run(1.0)
    replica.state.retain(())
    assert not replica.state.replicas
    replica.run(1.0)
    assert replica.state.replicas["a"].num_own == 4
    replica.end(*requests)
    assert replica.state.replicas["a"].num_own == 0


def test_a_request_that_ends_on_a_lost_replica_leaves_nothing_behind(virtual_replica) -> None:
    replica = virtual_replica()
    lost = replica.begin()
    replica.run(1.0)
    replica.state.retain(())
    replica.end(lost)
    replica.begin()
    replica.run(1.0)
    assert replica.state.replicas["a"].num_own == 1


def test_a_moments_dip_is_no_change_of_the_load() -> None:
    replica = ReplicaState()
    replica.num_own = 64
    assert replica.load(1.0) == 64
    replica.num_own = 1
    assert replica.load(1.1) == 64
    assert replica.load(2.0) == 1
    replica.num_own = 8
    assert replica.load(2.01) == 8, "a rise counts at once"


def test_plain_decoding_takes_what_the_idlest_replica_tells(table) -> None:
    state = ControlState(SpeculationConfig())
    assert state.plain_token_s == 0
    busy, idle = (state.proposer(replica_id, "draft").replica for replica_id in ("busy", "idle"))
    busy.table, busy.num_others = type(table)(table.rows, tuple(2 * step_ns for step_ns in table.step_ns)), 8
    idle.table, idle.num_others = table, 9
    assert state.plain_token_s == 2 * table.step_s(8)
    idle.num_others = 2
    assert state.plain_token_s == table.step_s(2)


def test_a_new_request_is_likely_to_draft_where_some_replica_is_on_or_unknown(virtual_replica) -> None:
    one = virtual_replica()
    assert one.state.is_open("draft")
    one.acceptance = 0.0
    one.begin()
    one.run(5.0)
    assert not one.state.is_open("draft")
    other = virtual_replica(state=one.state, replica_id="b", base_s=0.1)
    other.overhead_s, other.acceptance = 0.0, 0.9
    one.end()
    other.begin()
    other.run(60.0)
    assert other.state.is_open("draft")
