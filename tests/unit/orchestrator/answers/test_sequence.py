import pytest

from orchestrator.answers.sequence import Sequence
from pilotfish.errors import InternalError
from pilotfish.messages import Verdict
from pilotfish.types import FinishReason


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of((1, 2))


@pytest.mark.parametrize("base_length", [0, 1, 3, 100])
def test_a_verdict_that_stands_elsewhere_is_refused(sequence: Sequence, base_length: int) -> None:
    with pytest.raises(InternalError, match="2 are committed"):
        sequence.commit(Verdict(1, base_length, 0, 0, (7,)))
    assert sequence.length == 2


def test_nothing_follows_the_end(sequence: Sequence) -> None:
    sequence.commit(Verdict(1, 2, 0, 0, (7,), finish_reason=FinishReason.STOP))
    with pytest.raises(InternalError):
        sequence.commit(Verdict(1, 3, 0, 0, (7,)))
