"""What replicas are told of a text that a drafter may learn from."""

import dataclasses

import pytest

from pilotfish.messages import CloseSequence, OpenSequence, SequenceError, Verdict
from pilotfish.types import SequenceErrorCode


@pytest.fixture
def learned_from(world):
    request = dataclasses.replace(world.request(), learns=True, request_id="mine")
    return world.session(request)


def told(link) -> tuple[list[str], list[bool]]:
    """What its sequences may be kept as, and whether each came to its end."""
    opened = [command.learn_as for command in link.commands if isinstance(command, OpenSequence)]
    closed = [command.is_finished for command in link.commands if isinstance(command, CloseSequence)]
    return opened, closed


async def test_target_and_drafter_hear_that_the_answer_came_to_its_end(world, learned_from) -> None:
    await world.tokens(learned_from)
    assert told(world.target_a) == told(world.draft_a) == (["mine"], [True])


async def test_of_other_requests_they_hear_nothing(world) -> None:
    await world.tokens(world.session())
    assert told(world.target_a) == told(world.draft_a) == ([""], [True])


async def test_a_client_that_goes_away_leaves_nothing_to_keep(world, learned_from) -> None:
    world.target_a.decodes_step_by_step = True
    async with learned_from.running() as chunks:
        await chunks.take()
        assert not learned_from.sequence.is_finished
    assert told(world.target_a) == (["mine"], [False])
    assert told(world.draft_a)[1] in ([], [False])


async def test_a_target_that_was_left_keeps_nothing_and_the_next_one_does(world, learned_from) -> None:
    world.targets.links.append(world.target_b)
    num_verdicts = 0

    def fail_in_the_middle(event):
        nonlocal num_verdicts
        num_verdicts += isinstance(event, Verdict)
        if num_verdicts == 4:
            return (SequenceError(event.sequence_id, SequenceErrorCode.INTERNAL, "a fault"),)
        return (event,)

    world.target_a.on_event = fail_in_the_middle
    await world.tokens(learned_from)
    assert told(world.target_a) == (["mine"], [False])
    assert told(world.target_b) == (["mine"], [True])
    (opening,) = [command for command in world.target_b.commands if isinstance(command, OpenSequence)]
    assert opening.output_token_ids, "all of the text is computed there"
