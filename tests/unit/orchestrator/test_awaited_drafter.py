from orchestrator.awaited_drafter import AwaitedDrafter
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from pilotfish.messages import CloseSequence, OpenSequence


async def test_what_a_closed_drafter_held_is_free_and_it_drafts_again_when_asked(
    memory_pool, memory_link, sequence_of
) -> None:
    link, sequence = memory_link("draft"), sequence_of((1, 2, 3))
    drafter = AwaitedDrafter(lambda out: RemoteDrafter(memory_pool(link), lambda num_tokens: 5.0, out))
    first = await drafter.propose(sequence, 2)
    for _ in range(2):
        drafter.close()
    assert (await drafter.propose(sequence, 2)).token_ids == first.token_ids != ()
    drafter.close()
    assert [type(command) for command in link.commands if isinstance(command, OpenSequence | CloseSequence)] == [
        OpenSequence,
        CloseSequence,
    ] * 2
