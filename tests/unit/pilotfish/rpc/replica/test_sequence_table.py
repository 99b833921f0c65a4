import asyncio

import pytest

from pilotfish.messages import Event, Opened, SequenceError, Verdict
from pilotfish.rpc.replica.sequence_table import SequenceTable
from pilotfish.types import FinishReason, SequenceErrorCode


def error(code: SequenceErrorCode) -> SequenceError:
    return SequenceError(1, code, "")


async def test_equal_ids_of_two_peers_become_two_sequences() -> None:
    table: SequenceTable[str] = SequenceTable()
    first, second = table.open("a", 7), table.open("b", 7)
    assert first.engine_sequence_id != second.engine_sequence_id
    assert table.find(second.engine_sequence_id) is second
    table.remove(first)
    table.remove(first)
    assert table.find(first.engine_sequence_id) is None
    assert len(table) == 1


async def test_engine_ids_are_never_used_again() -> None:
    table: SequenceTable[str] = SequenceTable()
    seen = set()
    for _ in range(3):
        entry = table.open("a", 7)
        seen.add(entry.engine_sequence_id)
        table.remove(entry)
    assert len(seen) == 3


async def test_waiting_until_it_is_empty() -> None:
    table: SequenceTable[str] = SequenceTable()
    await table.wait_empty()
    entry = table.open("a", 7)
    waiting = asyncio.create_task(table.wait_empty())
    await asyncio.sleep(0)
    assert not waiting.done()
    table.remove(entry)
    await waiting


@pytest.mark.parametrize(
    ("event", "when_new", "when_running"),
    [
        (Opened(1, 0), False, False),
        (Verdict(1, 2, 0, 0, (3,)), False, False),
        (Verdict(1, 2, 0, 0, (3,), finish_reason=FinishReason.STOP), True, True),
        (error(SequenceErrorCode.STALE), False, False),
        # Of a new sequence it refuses the opening, later one item.
        (error(SequenceErrorCode.INVALID), True, False),
        (error(SequenceErrorCode.UNKNOWN_SEQUENCE), True, True),
        (error(SequenceErrorCode.RESOURCE_EXHAUSTED), True, True),
        (error(SequenceErrorCode.INTERNAL), True, True),
    ],
)
async def test_what_ends_a_sequence(event: Event, when_new: bool, when_running: bool) -> None:
    table: SequenceTable[str] = SequenceTable()
    entry = table.open("a", 7)
    assert entry.ends_with(event) is when_new
    entry.has_events = True
    assert entry.ends_with(event) is when_running
