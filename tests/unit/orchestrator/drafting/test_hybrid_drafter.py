from __future__ import annotations

import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.drafter import DraftBlock
from orchestrator.drafting.lookup_drafter import HybridDrafter, LookupDrafter
from pilotfish.config import DraftConfig
from pilotfish.speculation.lookup.lookups import LOOKUPS

COPIED = (1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4)
DOUBTFUL = (1, 2, 3, 9, 1)


class Other:
    """A drafter on a replica."""

    def __init__(self, block: DraftBlock) -> None:
        self.block = block
        self.unavailable_reason = ""
        self.num_missed_deadlines = 3
        self.asked: list[int] = []
        self.calls: list[str] = []

    def prepare(self, sequence: Sequence) -> None:
        self.calls.append("prepare")

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        self.asked.append(num_tokens)
        return self.block

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        raise AssertionError("an answer would take a round trip")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def other() -> Other:
    return Other(DraftBlock((7, 7), elapsed_s=1.0))


def hybrid(other: Other) -> HybridDrafter:
    lookup = LookupDrafter(LOOKUPS["suffix"](DraftConfig())(), num_prompt_tokens=1)
    return HybridDrafter(lookup, other, min_accepted_tokens=1.0, max_lookup_tokens=8)


async def test_a_confident_lookup_answers_as_far_as_it_likes(sequence_of, other) -> None:
    block = await hybrid(other).propose(sequence_of(COPIED), 2)
    assert block.token_ids == (5, 6, 7, 8, 1, 2, 3, 4)
    assert other.asked == []


async def test_else_the_other_drafter_is_asked(sequence_of, other) -> None:
    block = await hybrid(other).propose(sequence_of(DOUBTFUL), 2)
    assert block.token_ids == (7, 7)
    assert block.elapsed_s >= 1.0
    assert other.asked == [2]


async def test_what_was_found_is_better_than_nothing(sequence_of, other) -> None:
    other.block = DraftBlock(problem="late", elapsed_s=1.0)
    block = await hybrid(other).propose(sequence_of(DOUBTFUL), 2)
    assert block.token_ids[0] == 2
    assert block.elapsed_s >= 1.0
    nothing = await hybrid(other).propose(sequence_of((1, 2, 3)), 2)
    assert (nothing.token_ids, nothing.problem) == ((), "late")


async def test_the_other_is_prepared_closed_and_counted(sequence_of, other) -> None:
    subject = hybrid(other)
    subject.prepare(sequence_of(COPIED))
    subject.close()
    assert other.calls == ["prepare", "close"]
    assert subject.num_missed_deadlines == 3
