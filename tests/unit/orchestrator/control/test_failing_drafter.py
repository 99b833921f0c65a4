"""Drafters that fail or are late, and what of it the controller remembers."""

from orchestrator.control.reasons import Reason


def test_a_drafter_that_failed_is_told_of_until_something_else_limits(virtual_replica) -> None:
    replica = virtual_replica()
    request = replica.begin()
    replica.run(0.5)
    replica.failing = 1.0
    replica.run(0.1)
    replica.failing = 0.0
    replica.run(0.5)
    limitation = request.controller.limitation
    assert request.latest.reason is Reason.FASTEST
    assert (limitation.reason, limitation.text) == (Reason.DRAFTER_FAILED, "a proposal missed its deadline")
    replica.facts = {"drafter_absence": "it is gone"}
    replica.run(0.5)
    assert (limitation.reason, limitation.text) == (Reason.NO_DRAFTER, "it is gone")


def test_a_drafter_that_often_fails_costs_no_more_than_it_brings(virtual_replica) -> None:
    """Half of the proposals miss a deadline of five steps."""
    replica = virtual_replica()
    replica.draft_token_s = 0.0002
    request = replica.begin()
    replica.run(1.0)
    replica.failing, replica.wait_s = 0.5, 0.05
    replica.run(4.0)
    assert replica.speed_over_plain(request, 60.0) > 0.93
    replica.failing = 0.0
    replica.run(60.0)
    assert replica.speed_over_plain(request, 20.0) > 1.7, "it is found out that it is well again"


def test_what_failed_proposals_cost_is_remembered_of_a_load(virtual_replica) -> None:
    """Drafts that come too late among four requests, and in time for one alone."""
    replica = virtual_replica()
    replica.wait_s = 0.05
    replica.begin()
    for turn in range(3):
        replica.failing = 0.0
        replica.run(10.0)
        others, replica.failing = replica.begin_many(3), 0.5
        replica.run(0.5)
        num_drafting = sum(other.latest.num_draft_tokens > 0 for other in others)
        assert num_drafting == (3 if turn == 0 else 0)
        replica.run(10.0)
        replica.end(*others)
