"""A replica that refuses one sequence goes on drafting for all others."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from pilotfish.features import Features
from pilotfish.messages import Opened, OpenSequence, SequenceError, Verdict
from pilotfish.types import LoadReport, SequenceErrorCode
from tests.support.asked_drafter import AskedDrafter


def drafter_on(pool, **options) -> AskedDrafter:
    return AskedDrafter(lambda out: RemoteDrafter(pool, lambda num_tokens: 5.0, out, **options))


def refusing(code: SequenceErrorCode, *, param: str = "", at_opening: bool = False):
    """What a replica sends of the sequence that it has opened first."""

    def on_event(event):
        if event.sequence_id != 1:
            return (event,)
        error = SequenceError(1, code, "too much for this drafter", 0 if at_opening else 3, param)
        if isinstance(event, Opened):
            return (error,) if at_opening else (event,)
        return () if at_opening else (error,)

    return on_event


REFUSALS = {
    "its opening": refusing(SequenceErrorCode.INVALID, at_opening=True),
    "its next tokens": refusing(SequenceErrorCode.INVALID),
    "its grammar": refusing(SequenceErrorCode.INVALID, param="grammar"),
    "a grammar that the replica cannot compile": refusing(SequenceErrorCode.INTERNAL, param="grammar"),
    "more than the replica's cache holds": refusing(SequenceErrorCode.RESOURCE_EXHAUSTED, at_opening=True),
}


@pytest.mark.parametrize("on_event", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_the_sequences_own(memory_pool, memory_link, sequence_of, on_event) -> None:
    link = memory_link("small")
    link.load = LoadReport(num_kv_blocks_total=1)
    link.on_event = on_event
    pool = memory_pool(link)
    sequence = sequence_of(tuple(range(14)))
    refused = drafter_on(pool)
    block = await refused.propose(sequence, 2)
    assert "too much for this drafter" in block.problem
    assert (link.failures, link.is_full, link.mailboxes) == ([], False, {})
    assert refused.unavailable_reason == "too much for this drafter"
    assert not refused.drafter.is_saturated
    num_commands = len(link.commands)
    sequence.commit(Verdict(0, sequence.length, 0, 0, (7,)))
    refused.prepare(sequence)
    assert (await refused.propose(sequence, 2)).token_ids == ()
    assert len(link.commands) == num_commands
    other = drafter_on(pool)
    assert other.unavailable_reason == ""
    assert len((await other.propose(sequence_of(), 2)).token_ids) == 2
    assert link.num_successes == 1


async def test_who_refuses_a_sequence_gets_no_more_features_of_it(memory_pool, memory_link, sequence_of) -> None:
    link, feed, sequence = memory_link("head"), FeatureFeed((0, 1, 2)), sequence_of()
    link.model = msgspec.structs.replace(link.model, proposer="eagle3", feature_layers=(0, 1, 2))
    link.on_event = refusing(SequenceErrorCode.INVALID)
    drafter = drafter_on(memory_pool(link), features=feed)
    drafter.prepare(sequence)
    assert feed.request(link.model, sequence.length) is not None
    feed.add(Features(0, 3, bytes(3)))
    assert (await drafter.propose(sequence, 2)).problem
    assert feed.request(link.model, sequence.length) is None


async def test_what_one_replica_refuses_another_may_draft(memory_pool, memory_link, sequence_of) -> None:
    small, large = memory_link("small"), memory_link("large")
    small.on_event = refusing(SequenceErrorCode.INVALID, at_opening=True)
    drafter, sequence = drafter_on(memory_pool(small, large)), sequence_of()
    assert (await drafter.propose(sequence, 2)).problem
    assert drafter.unavailable_reason == ""
    assert len((await drafter.propose(sequence, 2)).token_ids) == 2
    large.is_circuit_open = True
    assert drafter.unavailable_reason == "too much for this drafter"
    assert len([command for command in small.commands if isinstance(command, OpenSequence)]) == 1


@pytest.mark.parametrize(
    ("code", "noted"),
    [
        (SequenceErrorCode.RESOURCE_EXHAUSTED, "is_full"),
        (SequenceErrorCode.UNAVAILABLE, "is_draining"),
        (SequenceErrorCode.INTERNAL, "failures"),
    ],
)
async def test_what_is_no_refusal_is_told_to_the_link_as_what_it_is(
    memory_pool, memory_link, sequence_of, code, noted
) -> None:
    link = memory_link("a")
    link.load = LoadReport(num_kv_blocks_total=64)
    link.on_event = refusing(code)
    assert (await drafter_on(memory_pool(link)).propose(sequence_of(), 2)).problem
    assert [bool(getattr(link, name)) for name in ("is_full", "is_draining", "failures")] == [
        name == noted for name in ("is_full", "is_draining", "failures")
    ]


async def test_a_pool_is_saturated_where_all_its_places_are_taken(memory_pool, memory_link, sequence_of) -> None:
    link = memory_link("a")
    pool = memory_pool(link)
    holder, drafter = drafter_on(pool), drafter_on(pool)
    holder.prepare(sequence_of())
    # As told while prompts were read: one is no flood, and a flood shows in what drafts take.
    link.load = LoadReport(num_sequences_running=0, num_sequences_waiting=9)
    assert (holder.drafter.is_saturated, drafter.drafter.is_saturated, drafter.unavailable_reason) == (False, False, "")
    link.is_full = True
    assert (holder.drafter.is_saturated, holder.unavailable_reason) == (False, "")
    assert drafter.drafter.is_saturated
    assert drafter.unavailable_reason
