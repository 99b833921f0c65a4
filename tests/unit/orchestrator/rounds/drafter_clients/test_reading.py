"""A replica that has much to read is late for that, not as it fails."""

import pytest

from orchestrator.rounds.commands import Arrived, Command, Report, Woken
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from pilotfish.messages import Proposal, Verdict
from pilotfish.types import LoadReport, SamplingParams


@pytest.mark.parametrize(("num_tokens", "is_held_to_it"), [(2, True), (200, False)])
def test_what_was_decoded_without_it_is_read_as_a_prompt_is(
    memory_pool, memory_link, sequence_of, num_tokens, is_held_to_it
) -> None:
    """After a long plain run a replica has so much to read that it misses deadlines: others are drafted for in time."""
    out: list[Command] = []
    sequence = sequence_of(sampling=SamplingParams(temperature=0, max_tokens=500))
    drafter = RemoteDrafter(memory_pool(memory_link("draft-a")), lambda num_tokens: 1.0, out)
    assert drafter.ask(sequence, 2, 0.0) is None
    assert drafter.peer is not None
    assert drafter.hear(Arrived(drafter.peer, Proposal(1, 3, (4, 5)), 0.5, LoadReport()), sequence, 0.5)
    sequence.commit(Verdict(1, sequence.length, 0, 0, (7,) * num_tokens))
    out.clear()
    for now_s in (30.0, 32.0, 42.0):
        assert drafter.ask(sequence, 2, now_s) is None
        assert drafter.hear(Woken(now_s + 1.0, "deadline"), sequence, now_s + 1.0).problem
    failures = [command.service for command in out if isinstance(command, Report)]
    assert failures == ["failure"] * (3 if is_held_to_it else 1)  # that it never comes is held against it in the end
