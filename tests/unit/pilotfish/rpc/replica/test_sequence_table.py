import pytest

from pilotfish.messages import Event, Opened, SequenceError, Verdict
from pilotfish.rpc.replica.sequence_table import SequenceTable
from pilotfish.types import FinishReason, SequenceErrorCode


def error(code: SequenceErrorCode) -> SequenceError:
    return SequenceError(1, code, "")


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
